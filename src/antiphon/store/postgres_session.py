"""The one connection of a server that stays open: it listens for the doorbell and holds the locks of its owners.

The lock of an owner goes with this connection, and so with the process: the others see at once that it was killed. If
only the connection is lost, it is made again and the lock is taken again, within a time that the others allow for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict

from antiphon.store.base import Doorbell
from antiphon.store.postgres_database import Connection, Database, connect, execute, fetch

__all__ = ["RELOCK_SECONDS", "Bell", "Session", "lock_key"]

_log = logging.getLogger(__name__)

CHANNEL = "antiphon"
SEPARATOR = "\x1f"
RELOCK_SECONDS = 10.0
"""After a restart of the database: how long an owner may take to get its lock again."""

_PING_SECONDS = 2.0
_SILENCE_SECONDS = 3.0
"""How long the database may take for an answer that costs nothing, before the network is taken for broken."""

_LONGEST_PAUSE = 0.5
_CLOSE_SECONDS = 2.0
_MOST_WAITING = 10_000
_MOST_AT_ONCE = 500
_LONGEST_PAYLOAD = 7_000
_RING_PATIENCE = 1.0


def lock_key(owner: str) -> int:
    """The number of the advisory lock that stands for an owner."""
    return int.from_bytes(hashlib.sha256(f"antiphon owner {owner}".encode()).digest()[:8], "big", signed=True)


class Session:
    """The connection, made again whenever it is lost. `since` is when that last happened, by the loop's clock."""

    def __init__(self, url: str, database: Database) -> None:
        self._url = url
        self._database = database
        self._connection: Connection | None = None
        self._bells: list[Doorbell] = []
        self._owners: dict[str, bool] = {}
        self._busy = asyncio.Lock()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.since = 0.0

    @property
    def connected(self) -> bool:
        """Whether it is there now."""
        return self._connection is not None and not self._lost.is_set()

    def listen(self, doorbell: Doorbell) -> None:
        """Ring this one too."""
        self._bells.append(doorbell)

    async def open(self) -> None:
        """Connect, and from then on see that it stays so.

        Raises:
            Exception: it cannot be connected.
        """
        await self._connect()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Close the connection, and with it give the locks back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=_CLOSE_SECONDS)
            except Exception as error:  # noqa: BLE001 - it is closed either way
                _log.debug("the listening connection did not close in order", exc_info=error)

    async def hold(self, owner: str) -> None:
        """Take the lock of an owner, and enter it; if the connection is away, as soon as it is back."""
        self._owners[owner] = False
        async with self._busy:
            if self._connection is not None:
                try:
                    await self._lock(self._connection, owner)
                except Exception as error:  # noqa: BLE001 - the keeper connects anew and locks then
                    self._fail(error)

    async def release(self, owner: str) -> None:
        """Give the lock of an owner back."""
        if not self._owners.pop(owner, False):
            return
        async with self._busy:
            if self._connection is not None:
                try:
                    await self._connection.execute("SELECT pg_advisory_unlock($1)", lock_key(owner))
                except Exception as error:  # noqa: BLE001 - a lost connection has given it back
                    self._fail(error)

    async def _connect(self) -> None:
        connection = await connect(self._url)
        try:
            self._lost.clear()
            connection.add_termination_listener(lambda _: self._lost.set())
            await connection.add_listener(CHANNEL, self._rung)
            for owner in self._owners:
                self._owners[owner] = False
                await self._lock(connection, owner)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self.since = asyncio.get_running_loop().time()

    async def _lock(self, connection: Connection, owner: str) -> None:
        # Not a lock to wait for: an earlier connection of ours may hold it, until the database finds that one dead.
        rows = await connection.fetch("SELECT pg_try_advisory_lock($1)", lock_key(owner))
        if rows[0][0]:
            self._owners[owner] = True
            await execute(connection, "join", owner=owner, lock_key=lock_key(owner))

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            if not self._lost.is_set():
                try:
                    async with asyncio.timeout(_PING_SECONDS):
                        await self._lost.wait()
                except TimeoutError:
                    await self._ping()
                    continue
            async with self._busy:
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.terminate()
                try:
                    await self._connect()
                    pause = 0.0
                    continue
                except Exception as error:  # noqa: BLE001 - the database may be back in a moment
                    self._fail(error)
            pause = min(max(2 * pause, 0.02), _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _ping(self) -> None:
        """See that the other end is there, and take the locks that could not be had before."""
        async with self._busy:
            connection = self._connection
            if connection is None:
                return
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await connection.execute("SELECT 1")
                    for owner, held in list(self._owners.items()):
                        if not held:
                            await self._lock(connection, owner)
            except Exception as error:  # noqa: BLE001 - it is made again
                self._fail(error)
                if isinstance(error, TimeoutError):
                    self._database.reset()

    def _fail(self, error: Exception) -> None:
        _log.debug("the listening connection is lost", exc_info=error)
        self._lost.set()

    def _rung(self, connection: object, pid: int, channel: str, payload: str) -> None:
        del connection, channel
        tenant, separator, response_id = payload.rpartition(SEPARATOR)
        if not separator or self._database.is_ours(pid):
            return
        for bell in self._bells:
            try:
                bell(tenant, response_id)
            except Exception as error:  # noqa: BLE001 - one who does not hear must not keep the others from it
                _log.error("a doorbell failed", exc_info=error)


class Bell:
    """Tells the other servers what was written, after it is durable and in a transaction of its own.

    Rings of one turn of the event loop, and those that come while the last ones are on their way, share a statement.
    `missed` counts those that did not get through: whoever waits for one looks by itself after a while.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.missed = 0

    def ring(self, tenant: str, response_id: str) -> None:
        """Tell of this response soon; never waits and never raises."""
        payload = f"{tenant}{SEPARATOR}{response_id}"
        if self._closed or len(self._waiting) >= _MOST_WAITING or len(payload) > _LONGEST_PAYLOAD:
            self.missed += 1
            return
        self._waiting[payload] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Send what waits, and no more."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _send(self) -> None:
        try:
            while self._waiting:
                payloads = [self._waiting.popitem(last=False)[0] for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))]
                try:
                    await self._database.run(
                        lambda connection, _, payloads=payloads: fetch(
                            connection, "ring", channel=CHANNEL, payloads=payloads
                        ),
                        patience=_RING_PATIENCE,
                    )
                except Exception as error:  # noqa: BLE001 - a help only
                    self.missed += len(payloads)
                    _log.debug("a doorbell could not be rung", exc_info=error)
        finally:
            self._task = None
