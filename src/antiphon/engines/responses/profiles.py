"""What each kind of upstream with a Responses endpoint takes, enforces and keeps, as data.

The names of fields are the driver's affair (`antiphon.client.profiles`); what holds without a check is named as it is
for chat completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from antiphon.client import profiles as driver
from antiphon.engines.upstream.profiles import AFFINITY, ROUTERS, SAMPLERS
from antiphon.engines.upstream.profiles import Profile as Trust

__all__ = ["PROFILES", "Profile"]


class Profile(Struct, frozen=True):
    """One kind of upstream.

    `trust` is what it enforces, and which fields of sampling, choices and efforts it reads; `wire` is how the driver
    speaks to it. `custom` says that it takes custom tools as they are. `thoughts` is what goes back of past thinking:
    its `text`, or the `sealed` items that came. `keyed` says that it takes a `prompt_cache_key`, and `salted` that it
    takes a `cache_salt`. `keeps` says that it runs responses in the background and streams them again from any of their
    events (ADR 11), `summaries` that it sums up its thinking where it is asked to. `key_header` is the header
    of the key where it is no bearer's.
    """

    trust: Trust
    wire: driver.Profile
    custom: bool = False
    thoughts: Literal["text", "sealed"] | None = None
    keyed: bool = False
    salted: bool = False
    summaries: bool = False
    keeps: bool = False
    key_header: str | None = None

    @property
    def name(self) -> str:
        """The name by which settings name it."""
        return self.trust.name


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_ALL: Final = frozenset({"required", "named", "json_object", "json_schema"})
_CHOICES: Final = frozenset({"none", "required", "named", "allowed"})
_USUAL: Final = ("temperature", "top_p")
_PENALTIES: Final = ("presence_penalty", "frequency_penalty", "seed", "stop", "logit_bias", "top_k", "min_p")
_EFFORTS: Final = frozenset({"low", "medium", "high"})


def _openai(name: str) -> Trust:
    return Trust(
        name, enforces=_ALL, beside_tools=True, choices=_CHOICES, fields=_same(*_USUAL), efforts=None, strict=True
    )


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            Trust(
                "generic",
                choices=frozenset({"none", "required"}),
                fields=_same(*_USUAL),
                efforts=None,
                session_headers=AFFINITY,
            ),
            driver.GENERIC,
        ),
        Profile(
            _openai("openai"), driver.OPENAI, custom=True, thoughts="sealed", keyed=True, summaries=True, keeps=True
        ),
        Profile(
            _openai("azure"),
            driver.AZURE,
            custom=True,
            thoughts="sealed",
            keyed=True,
            summaries=True,
            keeps=True,
            key_header=driver.AZURE.key_header,
        ),
        Profile(
            Trust(
                "antiphon",
                enforces=_ALL,
                beside_tools=True,
                choices=_CHOICES,
                fields=_same(*_USUAL, *_PENALTIES, *SAMPLERS),
                efforts=None,
                template_kwargs=True,
                strict=True,
            ),
            driver.ANTIPHON,
            custom=True,
            thoughts="text",
            keyed=True,
            summaries=True,
            keeps=True,
        ),
        Profile(
            Trust(
                "vllm",
                enforces=frozenset({"json_schema"}),
                choices=frozenset(),
                fields={**_same(*_USUAL, *_PENALTIES), "repeat_penalty": "repetition_penalty"},
                efforts=_EFFORTS,
                session_headers=ROUTERS,
            ),
            driver.VLLM,
            thoughts="text",
            salted=True,
        ),
        Profile(
            Trust(
                "sglang",
                choices=frozenset(),
                fields={**_same(*_USUAL, *_PENALTIES), "repeat_penalty": "repetition_penalty"},
                efforts=_EFFORTS,
                session_headers=ROUTERS,
            ),
            driver.GENERIC,
            thoughts="text",
            salted=True,
        ),
        Profile(
            Trust("mixedbread", choices=frozenset({"none", "required"}), fields=_same(*_USUAL)),
            driver.MIXEDBREAD,
        ),
    )
}
"""The kinds, by the name under which settings name them."""
