"""A small collection for measuring search: passages of a made-up hotel's handbook, and questions with their answers.

Some questions share words with their answer, some name a code or a name, and some say the same in other words.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

__all__ = ["PASSAGES", "QUESTIONS", "ndcg", "recall"]

PASSAGES: dict[str, tuple[str, str]] = {
    "checkin": (
        "Arrival",
        "Rooms are ready from three in the afternoon. Guests who come earlier leave their bags at the desk.",
    ),
    "checkout": (
        "Departure",
        "Rooms are to be left by eleven. A later hour costs twenty euros and is agreed on the evening before.",
    ),
    "night-bell": (
        "Arrival",
        "After midnight the front door is locked. Ring the bell, and the porter opens within a minute.",
    ),
    "key-card": (
        "Rooms > Keys",
        "A card opens the room, the lift and the garage. A card that was lost is blocked at the desk and "
        "replaced free of charge.",
    ),
    "safe": (
        "Rooms > Safe",
        "The safe in the wardrobe takes a code of four digits. If it blinks red, its battery is empty: call "
        "extension 204.",
    ),
    "heating": (
        "Rooms > Temperature",
        "The knob under the window sets how warm the room gets. It answers slowly: wait half an hour before "
        "you turn it again.",
    ),
    "cooling": (
        "Rooms > Temperature",
        "Air conditioning stops as soon as a window is opened, and starts again two minutes after it was closed.",
    ),
    "wifi": (
        "Rooms > Network",
        "The wireless network is called Seeblick-Guest. The password stands on the back of the room card and "
        "changes every Monday.",
    ),
    "television": (
        "Rooms > Television",
        "Hold the button with the arrow for three seconds to show the screen of your phone on the television.",
    ),
    "minibar": (
        "Rooms > Drinks",
        "What is taken out of the small refrigerator is counted by a scale and put on the bill. Put nothing "
        "of your own into it.",
    ),
    "laundry": (
        "Services > Laundry",
        "Shirts that are handed in before nine come back on the same evening, ironed. Wool and silk take a day more.",
    ),
    "shoes": (
        "Services > Shoes",
        "A machine that polishes shoes stands on the second floor beside the stairs. It is for black and "
        "brown leather only.",
    ),
    "wake-up": (
        "Services > Telephone",
        "Dial 55 and the hour in four digits to be called in the morning. The call comes three times at most.",
    ),
    "taxi": (
        "Services > Transport",
        "A cab to the airport takes forty minutes and costs about sixty euros. The desk orders it half an hour ahead.",
    ),
    "bikes": (
        "Services > Transport",
        "Eight bicycles stand in the yard for guests. Helmets hang beside them; the locks open with the room card.",
    ),
    "parking": (
        "Services > Garage",
        "The garage below the house is two metres high. Vans use the lot on Mill Street, which is watched by camera.",
    ),
    "charging": (
        "Services > Garage",
        "Four places have a socket for electric cars of eleven kilowatts. Cable and card are lent at the desk.",
    ),
    "breakfast": (
        "Meals > Breakfast",
        "Breakfast is from half past six to ten, on Sundays to eleven. A packed one is given to whoever "
        "leaves earlier.",
    ),
    "dinner": (
        "Meals > Dinner",
        "The kitchen takes orders until half past nine. A table by the lake should be booked two days before.",
    ),
    "vegan": (
        "Meals > Diets",
        "Dishes without anything of animals are marked with a leaf. The kitchen cooks without gluten if it "
        "is told a day before.",
    ),
    "nuts": (
        "Meals > Diets",
        "Traces of nuts cannot be ruled out in bread and cakes. The list of ingredients lies at the bar.",
    ),
    "room-service": (
        "Meals > In the room",
        "Between seven and midnight food is brought to the room for five euros beyond the price of the dish.",
    ),
    "bar": (
        "Meals > Bar",
        "The bar on the roof is open from May to September when it does not rain. Last orders are at one in the night.",
    ),
    "children": (
        "Families",
        "A cot and a high chair cost nothing. Children below six sleep in the room of their parents free of charge.",
    ),
    "sitter": (
        "Families",
        "Somebody to look after the little ones in the evening is found through the desk, for eighteen euros an hour.",
    ),
    "dogs": (
        "Animals",
        "A dog may stay for fifteen euros a night, but not in the restaurant. Bowls and a blanket are in the room.",
    ),
    "pool": (
        "Spa > Pool",
        "The pool is twenty metres long and 28 degrees warm. Swimming is allowed from seven to ten at night.",
    ),
    "sauna": (
        "Spa > Sauna",
        "The sauna is heated at four. Swimsuits stay outside; towels lie at the entrance. Tuesdays are for women only.",
    ),
    "massage": (
        "Spa > Massage",
        "Fifty minutes of massage for back and neck cost seventy euros. What is called off on the same day "
        "is charged in full.",
    ),
    "gym": (
        "Spa > Sport",
        "The room with treadmills and weights is open all day and night. Wipe the machines after use.",
    ),
    "doctor": (
        "Emergencies",
        "A physician comes to the house within the hour: dial 0 and then 3. The nearest hospital is in Lindau.",
    ),
    "fire": (
        "Emergencies",
        "If the alarm sounds, leave by the stairs and not by the lift. The meeting point is the fountain "
        "before the house.",
    ),
    "defibrillator": (
        "Emergencies",
        "The device for a heart that has stopped hangs on the wall beside the desk. It speaks and says what to do.",
    ),
    "found": ("Desk", "What guests leave behind is kept for six months. It is sent by post if the postage is paid."),
    "bill": (
        "Desk > Payment",
        "Cards of all kinds are taken, cheques are not. A deposit of one night is booked when you arrive.",
    ),
    "invoice": (
        "Desk > Payment",
        "Whoever needs the bill made out to a company says so before it is printed, with the number for the tax.",
    ),
    "cancel": (
        "Booking",
        "A booking can be called off without cost up to seven days before. Later, eighty percent of the price are due.",
    ),
    "groups": (
        "Booking",
        "From ten rooms on the eleventh is free. Groups choose one menu for all, three days before.",
    ),
    "meeting": (
        "Conference",
        "The hall Bodan seats eighty in rows. A projector and two microphones are in the price of the day.",
    ),
    "flipchart": (
        "Conference",
        "Paper, pens and pin boards for workshops are in the cupboard E-17, whose key the desk has.",
    ),
    "boats": (
        "Around the house > Lake",
        "Rowing boats lie at the jetty. They are not lent out when the yellow storm light on the shore flashes.",
    ),
    "ferry": (
        "Around the house > Lake",
        "The ship to Bregenz leaves at ten past every hour from the pier, ten minutes on foot. Tickets are "
        "sold on board.",
    ),
    "hiking": (
        "Around the house > Hills",
        "The path marked with a blue fox leads to the chapel and back in two hours. It is too steep for prams.",
    ),
    "ski": (
        "Around the house > Winter",
        "In winter a bus goes to the slopes at eight. Skis are dried in the cellar, next to the boiler.",
    ),
    "quiet": ("House rules", "From ten at night music is played in the rooms so that nobody else hears it."),
    "smoking": (
        "House rules",
        "Nobody smokes inside. Ashtrays stand on the balconies; a room that smells of smoke is cleaned for 150 euros.",
    ),
    "visitors": (
        "House rules",
        "Visitors are welcome in the hall, and in rooms until eleven at night. They are told to the desk by name.",
    ),
    "model-204": (
        "Technology",
        "The coffee machine KX-204 shows error E7 when its tank is not pushed in all the way. Rinse it each week.",
    ),
    "model-310": (
        "Technology",
        "The printer LP-310 in the hall prints what is sent to print@seeblick.example. Error E4 means that "
        "paper is stuck.",
    ),
    "kx-e1": ("Technology > KX-204", "Error E1 of the coffee machine: no water comes. Open the valve behind it."),
    "kx-e3": (
        "Technology > KX-204",
        "Error E3 of the coffee machine: the grinder is blocked. Take the beans out and start it again.",
    ),
    "kx-e9": (
        "Technology > KX-204",
        "Error E9 of the coffee machine: it is too hot. Leave it off for a quarter of an hour.",
    ),
    "lp-e2": (
        "Technology > LP-310",
        "Error E2 of the printer: the toner is empty. Another cartridge is in cupboard E-12.",
    ),
    "lp-e6": ("Technology > LP-310", "Error E6 of the printer: its cover is open. Press it down until it clicks."),
    "room-117": (
        "Rooms > 117",
        "Room 117 has a door to 118, which is opened for families. Its bath has handles on the wall.",
    ),
    "room-203": (
        "Rooms > 203",
        "Room 203 looks to the yard and is the quietest of the house. It has one bed of 140 centimetres.",
    ),
    "room-311": (
        "Rooms > 311",
        "Room 311 lies below the roof. Its balcony looks to the lake, and its ceiling is low.",
    ),
    "aydin": ("Staff", "Leyla Aydin leads the kitchen. She is in the house from noon on, except on Wednesdays."),
    "brunner": ("Staff", "Tobias Brunner leads the reception, and decides on complaints. His extension is 118."),
    "costa": ("Staff", "Ines Costa is responsible for the conference halls. Her extension is 131."),
    "dietrich": (
        "Staff",
        "Jakob Dietrich is the janitor. He repairs what is broken in rooms, by order of the reception.",
    ),
    "rate-a": (
        "Prices > Rate A",
        "Rate A is for stays from Monday to Thursday and has no breakfast. It cannot be called off.",
    ),
    "rate-b": ("Prices > Rate B", "Rate B is for weekends and has breakfast and the sauna in it."),
    "rate-c": ("Prices > Rate C", "Rate C is for seven nights and more: fifteen percent less, with half board."),
    "storm": ("Around the house > Lake", "Forty flashes a minute warn of a storm, ninety say that it is there."),
}
"""Headings and texts by name."""

QUESTIONS: Sequence[tuple[str, dict[str, int]]] = (
    ("When can I get into my room?", {"checkin": 2, "night-bell": 1}),
    ("We arrive at two in the morning, is somebody there?", {"night-bell": 2, "checkin": 1}),
    ("late checkout price", {"checkout": 2}),
    ("I lost my room key", {"key-card": 2}),
    ("the strongbox does not close, its light is red", {"safe": 2}),
    ("It is too cold in here", {"heating": 2, "cooling": 1}),
    ("air conditioning does not work with open window", {"cooling": 2}),
    ("wifi password", {"wifi": 2}),
    ("internet access on my laptop", {"wifi": 2}),
    ("mirror my smartphone on the tv", {"television": 2}),
    ("Do I have to pay for the drinks in the fridge?", {"minibar": 2}),
    ("can I have a shirt washed until tonight", {"laundry": 2}),
    ("shoe polish", {"shoes": 2}),
    ("set an alarm for the morning", {"wake-up": 2}),
    ("How do I get to my flight?", {"taxi": 2}),
    ("rent a bicycle", {"bikes": 2}),
    ("my van is 2.4 m high, where do I leave it", {"parking": 2}),
    ("plug for a Tesla", {"charging": 2, "parking": 1}),
    ("breakfast hours on Sunday", {"breakfast": 2}),
    ("We have to leave before the buffet opens", {"breakfast": 2}),
    ("reserve a table with a view of the lake", {"dinner": 2}),
    ("my daughter is allergic to peanuts", {"nuts": 2, "vegan": 1}),
    ("plant-based food", {"vegan": 2}),
    ("eat in the room", {"room-service": 2}),
    ("cocktails outside", {"bar": 2}),
    ("babysitter", {"sitter": 2, "children": 1}),
    ("traveling with an infant", {"children": 2, "sitter": 1}),
    ("are pets allowed", {"dogs": 2}),
    ("how warm is the water for swimming", {"pool": 2}),
    ("ladies' day in the steam bath", {"sauna": 2}),
    ("my neck hurts from sitting", {"massage": 2, "doctor": 1}),
    ("workout at night", {"gym": 2}),
    ("I feel very sick", {"doctor": 2}),
    ("evacuation assembly place", {"fire": 2}),
    ("cardiac arrest", {"defibrillator": 2, "doctor": 1}),
    ("I forgot my jacket in the wardrobe last week", {"found": 2}),
    ("do you accept American Express", {"bill": 2}),
    ("receipt with the VAT id of my employer", {"invoice": 2, "bill": 1}),
    ("refund if we do not come", {"cancel": 2}),
    ("discount for twelve rooms", {"groups": 2}),
    ("room for a presentation with a beamer", {"meeting": 2, "flipchart": 1}),
    ("E-17", {"flipchart": 2}),
    ("is it safe to go out on the water in bad weather", {"boats": 2}),
    ("how often does the boat to Austria go", {"ferry": 2}),
    ("a walk with a stroller", {"hiking": 2, "children": 1}),
    ("where do wet skis go", {"ski": 2}),
    ("party in the room", {"quiet": 2, "visitors": 1}),
    ("fine for cigarettes", {"smoking": 2}),
    ("KX-204", {"model-204": 2}),
    ("coffee error E7", {"model-204": 2}),
    ("paper jam", {"model-310": 2}),
    ("extension 204", {"safe": 2}),
    ("KX-204 error E3", {"kx-e3": 2, "model-204": 1}),
    ("E9 coffee machine", {"kx-e9": 2}),
    ("what does E1 mean", {"kx-e1": 2}),
    ("LP-310 error E6", {"lp-e6": 2, "model-310": 1}),
    ("error E2", {"lp-e2": 2}),
    ("E-12", {"lp-e2": 2}),
    ("coffee tastes of nothing, beans are stuck", {"kx-e3": 2}),
    ("room 203", {"room-203": 2}),
    ("bed in 203", {"room-203": 2}),
    ("balcony of room 311", {"room-311": 2}),
    ("door between 117 and 118", {"room-117": 2}),
    ("bath for somebody who walks badly", {"room-117": 2}),
    ("extension 131", {"costa": 2}),
    ("Leyla Aydin", {"aydin": 2}),
    ("Who is the chef?", {"aydin": 2}),
    ("Brunner extension", {"brunner": 2}),
    ("I want to complain to the manager", {"brunner": 2}),
    ("the shower is broken, who repairs it", {"dietrich": 2}),
    ("Dietrich", {"dietrich": 2}),
    ("rate B sauna", {"rate-b": 2, "sauna": 1}),
    ("rate A cancellation", {"rate-a": 2, "cancel": 1}),
    ("price for two weeks", {"rate-c": 2}),
    ("half board", {"rate-c": 2}),
    ("ninety flashes a minute", {"storm": 2, "boats": 1}),
    ("jetty", {"boats": 2}),
    ("boiler cellar", {"ski": 2}),
    ("Bodan projector", {"meeting": 2}),
    ("Mill Street", {"parking": 2}),
    ("Seeblick-Guest", {"wifi": 2}),
    ("polish black leather", {"shoes": 2}),
    ("gluten", {"vegan": 2}),
    ("blue fox chapel", {"hiking": 2}),
    ("Lindau hospital", {"doctor": 2}),
    ("cheques", {"bill": 2}),
    ("high chair", {"children": 2}),
    ("helmets", {"bikes": 2}),
)
"""Questions, and how good an answer each passage is: 2 answers it, 1 is of some use."""


def ndcg(found: Sequence[str], good: dict[str, int], depth: int = 10) -> float:
    """How good the first answers are: 1 where the best come first."""
    gained = sum(good.get(name, 0) / log2(rank + 1) for rank, name in enumerate(found[:depth], 1))
    ideal = sum(gain / log2(rank + 1) for rank, gain in enumerate(sorted(good.values(), reverse=True)[:depth], 1))
    return gained / ideal if ideal else 0.0


def recall(found: Sequence[str], good: dict[str, int], depth: int = 100) -> float:
    """Which part of the answers is among the first."""
    return len(good.keys() & set(found[:depth])) / len(good)
