"""What goes wrong with PostgreSQL, in words for clients and operators: no password, no statement, no value of a row."""

from __future__ import annotations

import logging
import socket

from asyncpg import exceptions as pg

from antiphon.errors import APIError, ConfigurationError, InternalError, UnavailableError

__all__ = ["clean_error", "is_lost", "is_passing", "startup_error", "violated"]

_log = logging.getLogger(__name__)

_LOST = (
    OSError,
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.IdleSessionTimeoutError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.TooManyConnectionsError,
    # What was the primary is a standby now.
    pg.ReadOnlySQLTransactionError,
    # A connection that has been told of a shutdown and is not closed yet; also one of a standby.
    pg.InternalClientError,
)
_PASSING = (pg.DeadlockDetectedError, pg.SerializationError)


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone or cannot be made now, so that another one may help."""
    if isinstance(error, pg.InterfaceError):
        # Of a connection that was closed; the others are faults in the call.
        return not isinstance(error, pg.ClientConfigurationError | pg.DataError)
    return isinstance(error, _LOST)


def is_passing(error: BaseException) -> bool:
    """Whether the same statement is likely to get through at once: two of them were in each other's way."""
    return isinstance(error, _PASSING) or violated(error) == "item"


def violated(error: BaseException) -> str | None:
    """The column or the index by which the database refused a row."""
    if isinstance(error, pg.NotNullViolationError):
        return str(_field(error, "column_name"))
    if isinstance(error, pg.UniqueViolationError):
        return str(_field(error, "constraint_name"))
    return None


def _field(error: pg.PostgresError, name: str) -> object:
    return getattr(error, name, None)


def clean_error(error: BaseException) -> APIError:
    """The error for a client; what it does not say goes to the log, where no row's values stand either."""
    if isinstance(error, APIError):
        return error
    if is_lost(error):
        return UnavailableError("The store cannot be reached now. Please try again later.", retry_after=5.0)
    reason = None
    if isinstance(error, pg.DiskFullError):
        reason = "the disk of its database is full"
    elif isinstance(error, pg.InsufficientResourcesError):
        reason = "its database is out of resources"
    elif isinstance(error, pg.QueryCanceledError | pg.LockNotAvailableError | pg.TransactionRollbackError):
        reason = "its database is too busy"
    if isinstance(error, pg.PostgresError):
        _log.error("the store failed: %s (%s)", error.args[0] if error.args else "", type(error).__name__)
    else:
        _log.error("the store failed", exc_info=error)
    if reason is not None:
        return UnavailableError(f"The store cannot be used now: {reason}.", retry_after=5.0)
    return InternalError("The store failed.")


def startup_error(error: BaseException, where: str) -> ConfigurationError:
    """Why a database cannot be opened, and what to do."""
    if isinstance(error, ConfigurationError):
        return error
    return ConfigurationError(f"The store {where} cannot be opened: {_reason(error)}")


def _reason(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, pg.PostgresError) and error.args else ""
    if isinstance(error, pg.InvalidPasswordError | pg.InvalidAuthorizationSpecificationError):
        return (
            f"the database refuses the login ({text}). Check user and password in the address of --store (special "
            "characters as %XX), or give the password in PGPASSWORD or a ~/.pgpass file."
        )
    if isinstance(error, pg.InvalidCatalogNameError):
        return f"{text}. Create it ('createdb -E UTF8 NAME'), or name another one in --store."
    if isinstance(error, pg.InsufficientPrivilegeError):
        return (
            f"{text}. Let the user make tables ('GRANT CREATE ON SCHEMA public TO USER'), or run 'antiphon db migrate' "
            "once as a user who may, and give this one SELECT, INSERT, UPDATE and DELETE."
        )
    if isinstance(error, pg.ClientConfigurationError | ValueError):
        return (
            "the address of --store cannot be read. Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special "
            "characters as %XX."
        )
    if isinstance(error, pg.DuplicateTableError):
        return f"{text}, and is not Antiphon's. Give it a database of its own, or a schema ('?search_path=NAME')."
    if isinstance(error, pg.TooManyConnectionsError):
        return f"{text}. Raise max_connections of the database, or run fewer servers."
    if isinstance(error, pg.CannotConnectNowError):
        return f"{text}. Wait until the database has started."
    if "startup parameter" in text:
        return f"{text}. Go past the connection pooler, or let it give each client a session of its own."
    if isinstance(error, pg.PostgresError):
        return f"the database says '{text}'."
    if isinstance(error, socket.gaierror):
        return "its host is not known. Check the address in --store; special characters are written as %XX."
    if isinstance(error, TimeoutError):
        return "the database does not answer. Check host and port in --store, and the network between."
    if isinstance(error, OSError):
        return "the database cannot be reached. Check host and port in --store, and that it runs."
    if isinstance(error, pg.TargetServerAttributeNotMatched):
        return "no host of the address is what target_session_attrs asks for."
    return f"{type(error).__name__}."
