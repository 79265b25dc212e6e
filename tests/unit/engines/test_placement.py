"""Where turns go: homes of histories, bounded load, replicas that are lost and come back."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engines.replicas.placement import Placement, bound

FOUR = [0, 1, 2, 3]
CHAINS = 200
TURNS = 10


def placement(count: int = 4, **options: float) -> Placement:
    return Placement([str(number) for number in range(count)], **options)  # pyright: ignore[reportArgumentType]


def landed(place: Placement, key: str, able: list[int]) -> int:
    """Where a turn goes that runs alone."""
    number = place.take(key, able)
    place.free(number)
    return number


@pytest.mark.requirement("routing:hash")
def test_each_server_has_the_same_home_for_a_history():
    one, other = placement(), placement()
    homes = [landed(one, f"chain{n}", FOUR) for n in range(400)]
    assert homes == [landed(other, f"chain{n}", FOUR) for n in reversed(range(400))][::-1]
    assert all(60 <= homes.count(number) <= 140 for number in FOUR)
    # One more replica takes its share, and nothing else changes its home.
    five = placement(5)
    more = [landed(five, f"chain{n}", [*FOUR, 4]) for n in range(400)]
    assert {new for old, new in zip(homes, more, strict=True) if old != new} == {4}


@pytest.mark.requirement("routing:load")
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=120), st.sets(st.integers(0, 3), min_size=1))
def test_no_replica_gets_more_than_its_bound(steps: list[tuple[int, bool]], able: set[int]):
    place = placement()
    running: list[int] = []
    for key, ends in steps:
        if ends and running:
            place.free(running.pop(key % len(running)))
        before = sum(place.in_flight)
        number = place.take(str(key) if key else "", sorted(able))
        running.append(number)
        assert number in able
        assert place.in_flight[number] <= bound(before, len(able))
    for number in running:
        place.free(number)
    assert place.in_flight == [0, 0, 0, 0]


@pytest.mark.requirement("routing:load")
def test_the_bound_is_a_quarter_above_the_mean_rounded_up():
    assert [bound(0, 4), bound(2, 4), bound(3, 4), bound(15, 4), bound(199, 4)] == [1, 1, 2, 5, 63]


@pytest.mark.requirement("routing:sticks")
def test_a_history_that_was_sent_elsewhere_stays_there():
    place = placement()
    home = landed(place, "a", FOUR)
    place.in_flight[home] = 9
    moved = landed(place, "a", FOUR)
    place.in_flight[home] = 0
    assert moved != home
    assert [landed(place, "a", FOUR) for _ in range(5)] == [moved] * 5
    assert place.moves == 1
    # Where that one is full, the one that knows an earlier part of it is the next best.
    place.in_flight[moved] = 9
    assert landed(place, "a", FOUR) == home


@pytest.mark.requirement("routing:sticks")
def test_homes_are_forgotten_in_time_and_in_number():
    now = 0.0
    place = Placement(["0", "1", "2", "3"], most=2, seconds=60.0, clock=lambda: now)
    home = landed(place, "a", FOUR)
    away = landed(place, "a", [n for n in FOUR if n != home])
    now = 60.0
    assert landed(place, "a", FOUR) == away
    now = 121.0
    assert landed(place, "a", FOUR) == home
    landed(place, "a", [n for n in FOUR if n != home])
    landed(place, "b", FOUR)
    landed(place, "c", FOUR)
    assert landed(place, "a", FOUR) == home


@pytest.mark.requirement("routing:lost")
def test_the_histories_of_a_lost_replica_move_once_and_stay():
    place = placement()
    keys = [f"chain{n}" for n in range(CHAINS)]
    homes = {key: landed(place, key, FOUR) for key in keys}
    left = [0, 1, 3]
    without = {key: landed(place, key, left) for key in keys}
    assert {key for key in keys if homes[key] != without[key]} == {key for key in keys if homes[key] == 2}
    assert {without[key] for key in keys if homes[key] == 2} == set(left)
    assert {key: landed(place, key, left) for key in keys} == without
    # It comes back with nothing in its cache, and gets new histories only.
    assert {key: landed(place, key, FOUR) for key in keys} == without
    assert 2 in {landed(place, f"new{n}", FOUR) for n in range(50)}


@pytest.mark.requirement("routing:keyless")
def test_a_turn_that_belongs_nowhere_goes_to_who_has_the_least_to_do():
    place = placement()
    assert sorted(place.take("", FOUR) for _ in range(4)) == FOUR
    place.free(2)
    assert place.take("", FOUR) == 2


@pytest.mark.requirement("routing:shown")
def test_two_hundred_chains_of_ten_turns_land_where_their_prefix_is():
    """Turns of random length, each chain beginning its next one after a random pause; a replica is lost half-way."""
    dice = random.Random(7)
    place = placement()
    able, last = list(FOUR), dict[int, int]()
    missed = dict.fromkeys(("before", "after"), 0)
    turns, loads, moved = dict.fromkeys(FOUR, 0), list[float](), dict[int, int]()
    events = [(dice.random(), chain, 0, -1) for chain in range(CHAINS)]
    heapq.heapify(events)
    begun = 0
    while events:
        now, chain, done, running = heapq.heappop(events)
        if running >= 0:
            place.free(running)
            if done < TURNS:
                heapq.heappush(events, (now + dice.expovariate(20), chain, done, -1))
            continue
        if begun == CHAINS * TURNS // 2:
            able.remove(1)
        begun += 1
        number = place.take(f"chain{chain}", able)
        if done and last[chain] != number:
            if last[chain] in able:
                missed["before" if len(able) == 4 else "after"] += 1
            else:
                moved[chain] = moved.get(chain, 0) + 1
        last[chain] = number
        turns[number] += 1
        in_flight = [place.in_flight[n] for n in able]
        if sum(in_flight) > CHAINS / 2:
            loads.append(max(in_flight) / (sum(in_flight) / len(able)))
        heapq.heappush(events, (now + dice.uniform(0.5, 1.5), chain, done + 1, number))
    assert missed["before"] <= 0.05 * CHAINS * (TURNS // 2 - 1)
    assert missed["after"] <= 0.05 * CHAINS * TURNS / 2
    assert set(moved.values()) == {1}
    assert 30 <= len(moved) <= 63
    # One turn more than the mean allows where the bound is rounded up.
    assert max(loads) <= 1.25 + 4 / CHAINS * 2
    assert turns[1] < min(turns[number] for number in able)


@pytest.mark.requirement("routing:sticks")
def test_histories_stay_where_they_are_when_the_list_of_replicas_changes():
    old, new = placement(), Placement(["5", "3", "0", "1"])
    keys = [f"chain{n}" for n in range(CHAINS)]
    for key in keys:
        landed(old, key, FOUR)
    homes = {key: landed(old, key, [0, 2, 3]) for key in keys}
    new.inherit(old)
    now = {key: landed(new, key, FOUR) for key in keys}
    places = {0: 2, 3: 1}
    assert all(now[key] == places[home] for key, home in homes.items() if home in places)
    assert {now[key] for key, home in homes.items() if home not in places} == set(FOUR)
