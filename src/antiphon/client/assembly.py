"""The items of an answer, put together from the events of its stream in whatever shape these come.

A `Slot` is one item in the making. Its texts are kept as they came, in pieces and whole, and joined when someone
looks. What is missing in an item that is said to be done is taken from its texts: so deltas without an item, an item
without deltas and a missing done-event all give the same item.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.client.items import content_texts, summary_texts
from antiphon.client.loose import as_dict, as_dicts, as_int, as_list, as_str, well_formed

__all__ = ["Assembly", "Slot"]

TextKey = tuple[str, int]

_FIELDS = frozenset({"arguments", "input", "code", "name"})
_TEXTS = ("output_text", "text")
_REFUSALS = ("refusal",)


class Slot:
    """One item in the making; `index` tells it from the others."""

    def __init__(self, index: int, kind: str, item: dict[str, Any]) -> None:
        self.index = index
        self.kind = kind
        self.item = item
        self.done = False
        self.announced = False
        self.finished = False
        self.pieces: dict[TextKey, list[str]] = {}
        self.whole: dict[TextKey, str] = {}
        self.annotations: dict[int, list[dict[str, Any]]] = {}
        self._held: dict[TextKey, str] = {}

    @property
    def id(self) -> str | None:
        """The item's id, where it has one."""
        return as_str(self.item.get("id")) or None

    def add(self, key: TextKey, delta: str) -> str:
        """Take a piece of a text in, and give what of it can be handed on: the half of a character waits."""
        held = self._held.pop(key, "")
        text = held + delta if held else delta
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[key] = text[-1]
            text = text[:-1]
        text = well_formed(text)
        if text:
            self.pieces.setdefault(key, []).append(text)
        return text

    def seen(self, *kinds: str) -> str:
        """All pieces of the texts of those kinds, in the order of their coming."""
        return "".join("".join(pieces) for (kind, _), pieces in self.pieces.items() if kind in kinds)

    def assembled(self) -> dict[str, Any]:
        """The item as far as it is known."""
        item = dict(self.item)
        item.setdefault("type", self.kind)
        keys = sorted({*self.pieces, *self.whole, *(("text", index) for index in self.annotations)})
        if self.kind == "message":
            item.setdefault("role", "assistant")
            item["content"] = self._parts(as_dicts(item.get("content")), keys)
        elif self.kind == "reasoning":
            for kind, texts in (("summary", summary_texts(item)), ("content", content_texts(item))):
                if not texts and any(key[0] == kind for key in keys):
                    part_type = "summary_text" if kind == "summary" else "reasoning_text"
                    found = [self._text(key, "") for key in keys if key[0] == kind]
                    item[kind] = [{"type": part_type, "text": text} for text in found]
        else:
            self._fill(item, keys)
        return item

    def _text(self, key: TextKey, known: str) -> str:
        if self.done and known:
            return known
        found = (known, self.whole.get(key, ""), "".join(self.pieces.get(key, ())))
        return max(found, key=len)

    def _parts(self, known: list[dict[str, Any]], keys: Iterable[TextKey]) -> list[dict[str, Any]]:
        parts = [dict(part) for part in known]
        for kind, index in sorted(keys, key=lambda key: key[1]):
            field, types = ("refusal", _REFUSALS) if kind == "refusal" else ("text", _TEXTS)
            fitting: dict[str, Any] | None = None
            if index < len(parts) and parts[index].get("type") in types:
                fitting = parts[index]
            elif self.done and any(part.get("type") in types for part in parts):
                continue
            if fitting is None:
                fitting = {}
                fitting["type"], fitting[field] = types[0], ""
                if types is _TEXTS:
                    fitting["annotations"] = []
                parts.insert(index, fitting)
            fitting[field] = self._text((kind, index), as_str(fitting.get(field)) or "")
            if kind == "text" and index in self.annotations and not fitting.get("annotations"):
                fitting["annotations"] = list(self.annotations[index])
        return parts

    def _fill(self, item: dict[str, Any], keys: Iterable[TextKey]) -> None:
        commands: list[str] = []
        for key in keys:
            kind = key[0]
            if kind in _FIELDS:
                item[kind] = self._text(key, as_str(item.get(kind)) or "") if _is_text(item.get(kind)) else item[kind]
            elif kind == "diff":
                operation = dict(as_dict(item.get("operation")))
                operation["diff"] = self._text(key, as_str(operation.get("diff")) or "")
                item["operation"] = operation
            elif kind == "command":
                commands.append(self._text(key, ""))
        action = as_dict(item.get("action"))
        if commands and not as_list(action.get("commands")):
            item["action"] = {**action, "commands": commands}


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


class Assembly:
    """All items of one answer, found by their output index, their id and their type, as far as events tell."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._at: dict[int, list[Slot]] = {}
        self._by_id: dict[str, Slot] = {}
        self._last: tuple[Any, Any, str] | None = None
        self._last_slot: Slot | None = None

    @property
    def slots(self) -> list[Slot]:
        """The items in the order of the output."""
        return sorted(self._slots, key=lambda slot: slot.index)

    def items(self) -> list[dict[str, Any]]:
        """The items as far as they are known, in the order of the output."""
        return [slot.assembled() for slot in self.slots]

    def find(self, event: dict[str, Any], kind: str) -> Slot:
        """The item that an event is about; an event about none that is known begins one."""
        key = (event.get("item_id"), event.get("output_index"), kind)
        if key == self._last and self._last_slot is not None:
            return self._last_slot
        index, item_id = as_int(key[1]), as_str(key[0]) or None
        slot = self._known(index, item_id, kind)
        if slot is None:
            slot = self._begin(index, kind, {"id": item_id} if item_id else {})
        elif item_id:
            self._by_id.setdefault(item_id, slot)
        self._last, self._last_slot = key, slot
        return slot

    def _known(self, index: int | None, item_id: str | None, kind: str) -> Slot | None:
        by_id = self._by_id.get(item_id) if item_id else None
        if by_id is not None and (by_id.kind == kind or index is None or index == by_id.index):
            return by_id
        if index is not None:
            return next((slot for slot in reversed(self._at.get(index, [])) if slot.kind == kind), None)
        if item_id:
            return None
        return next((slot for slot in reversed(self._slots) if slot.kind == kind), None)

    def announce(self, event: dict[str, Any]) -> Slot:
        """The slot of an item that is said to begin."""
        item, kind, index = _item_of(event)
        slot = self._same(item, kind, index)
        if slot is None:
            return self._begin(index, kind, item)
        if not slot.done:
            slot.item = {**slot.item, **item}
            self._name(slot)
        return slot

    def complete(self, event: dict[str, Any]) -> Slot:
        """The slot of an item that is said to be done."""
        item, kind, index = _item_of(event)
        slot = self._same(item, kind, index)
        if slot is None and index is not None:
            slot = next((one for one in self._at.get(index, []) if one.kind == kind and not one.done), None)
        if slot is None:
            slot = self._begin(index, kind, item)
        self.settle(slot, item)
        return slot

    def settle(self, slot: Slot, item: dict[str, Any]) -> None:
        """Take what is said of a whole item; what it leaves out stays as it was known."""
        known = slot.item
        slot.item = dict(item)
        for key in ("phase", "call_id", "name", "namespace"):
            if key in known:
                slot.item.setdefault(key, known[key])
        slot.done = True
        self._name(slot)

    def match(self, item: dict[str, Any], position: int, taken: set[int]) -> Slot:
        """The slot of an item of the final output, which stands there at that position."""
        item_id, kind = as_str(item.get("id")), as_str(item.get("type")) or "message"
        slot = self._by_id.get(item_id) if item_id else None
        if slot is None or id(slot) in taken:
            free = [one for one in self.slots if one.kind == kind and id(one) not in taken]
            call_id = as_str(item.get("call_id"))
            called = [one for one in free if call_id and one.item.get("call_id") == call_id]
            unnamed = [one for one in free if not (call_id and one.item.get("call_id"))]
            slot = next(iter(called or unnamed), None)
        if slot is None:
            slot = self._begin(position, kind, item)
        taken.add(id(slot))
        return slot

    def _same(self, item: dict[str, Any], kind: str, index: int | None) -> Slot | None:
        item_id, call_id = as_str(item.get("id")), as_str(item.get("call_id"))
        by_id = self._by_id.get(item_id) if item_id else None
        if by_id is not None and by_id.kind == kind:
            return by_id
        nearby = self._at.get(index, []) if index is not None else self._slots
        for slot in reversed(nearby):
            if slot.kind != kind:
                continue
            if call_id and slot.item.get("call_id") == call_id:
                return slot
            if index is not None and (slot.id is None or not item_id) and not (call_id and slot.item.get("call_id")):
                return slot
        return None

    def _begin(self, index: int | None, kind: str, item: dict[str, Any]) -> Slot:
        own = index
        if own is None or own in self._at:
            own = max(self._at, default=-1) + 1
        slot = Slot(own, kind, dict(item))
        self._slots.append(slot)
        self._at.setdefault(own, []).append(slot)
        if index is not None and index != own:
            self._at[index].append(slot)
        self._name(slot)
        return slot

    def _name(self, slot: Slot) -> None:
        self._last = None
        if slot.id:
            self._by_id[slot.id] = slot


def _item_of(event: dict[str, Any]) -> tuple[dict[str, Any], str, int | None]:
    item = as_dict(event.get("item"))
    return item, as_str(item.get("type")) or "message", as_int(event.get("output_index"))
