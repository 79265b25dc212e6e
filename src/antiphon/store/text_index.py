"""A text index in memory, for chunks that no text index on a disk may hold: FTS5 without their text.

Words are stemmed (Porter), and chunks ranked by BM25. What is taken out stays in the index, not found, until it is
more than what is found; then whoever has the index makes it anew.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

from antiphon.store.corpora import MOST_WORDS, TextHit

__all__ = ["NO_TEXT_SEARCH", "TOKENIZER", "TextIndex", "clean_words", "has_full_text", "leading", "match_of"]

TOKENIZER = "porter unicode61"
"""How FTS5 takes text apart: without accents and case, in any script, and English words by their stem."""

NO_TEXT_SEARCH = (
    "Words cannot be searched: the SQLite library of this Python was built without FTS5. Use a Python whose sqlite3 "
    "has it, such as those of python.org, Debian or uv."
)
"""What is told where there is no FTS5."""

_MOST_DEAD = 1_000
_ENOUGH = 4
"""How many times as many chunks as are wanted may be found before common words find no more of them."""

_COUNT = "SELECT count(*) FROM words WHERE words MATCH ?"
_SCHEMA = f"""
CREATE VIRTUAL TABLE words USING fts5 (heading, text, content = '', tokenize = '{TOKENIZER}');
CREATE TABLE files (n INTEGER PRIMARY KEY, file TEXT NOT NULL, found INTEGER NOT NULL DEFAULT 0);
CREATE INDEX files_by_id ON files (file);
CREATE TABLE chunks (n INTEGER PRIMARY KEY, file INTEGER NOT NULL, pos INTEGER NOT NULL);
CREATE INDEX chunks_by_file ON chunks (file);
"""
_SEARCH = """
SELECT f.file, c.pos, -bm25(words) * :scale
FROM words JOIN chunks AS c ON c.n = words.rowid JOIN files AS f ON f.n = c.file
WHERE words MATCH :words AND f.found = 1
  AND (:files IS NULL OR f.file IN (SELECT value FROM json_each(:files)))
ORDER BY 3 DESC, 1, 2 LIMIT :most
"""


@functools.cache
def has_full_text() -> bool:
    """Whether this Python's SQLite has FTS5."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def clean_words(words: Sequence[str]) -> list[str]:
    """The words without all that is neither a letter nor a digit, each once, those beyond `MOST_WORDS` left out."""
    kept = ("".join(sign for sign in word if sign.isalnum()) for word in words[:MOST_WORDS])
    return list(dict.fromkeys(word for word in kept if word))


def leading(counts: Mapping[str, int], most: int, ranked_at_most: int = 20_000) -> list[str]:
    """The words that a chunk must hold one of to be found, from how many chunks hold each.

    Ranking costs by the chunks that are ranked, and the words that most chunks hold tell least: beyond
    `ranked_at_most` chunks they add to the scores of chunks that hold a rarer word, and find none by themselves. Words
    that no chunk holds are left out.
    """
    found: list[str] = []
    ranked = 0
    for word, count in sorted(counts.items(), key=lambda pair: pair[1]):
        if count and (ranked < _ENOUGH * most or ranked + count <= ranked_at_most):
            found.append(word)
            ranked += count
    return found


def match_of(counts: Mapping[str, int], most: int) -> tuple[str, float]:
    """The query of FTS5 for words that so many chunks hold, and what its scores are to be multiplied by; "" for none.

    Each word is quoted, so that none can be read as an operator. Where some only add to scores, every word stands in
    the query twice, for the words that lead stand in both of its halves: so all of them count alike.
    """
    lead = leading(counts, most)
    common = [word for word, count in counts.items() if count and word not in lead]
    first = " OR ".join(f'"{word}"' for word in lead)
    if not common:
        return first, 1.0
    second = " OR ".join(f'"{word}"' for word in [*lead, *common, *common])
    return f"({first}) AND ({second})", 0.5


class TextIndex:
    """The chunks of one vector store by their words; `size` is the bytes of the text that it was given."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # Nothing of it may lie in a temporary file.
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.executescript(_SCHEMA)
        self._numbers: dict[str, int] = {}
        self._live: dict[str, int] = {}
        self._dead = 0
        self.size = 0

    @property
    def stale(self) -> bool:
        """Whether more was taken out than is left: time to make it anew."""
        return self._dead > max(_MOST_DEAD, sum(self._live.values()))

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()

    def add(self, file_id: str, chunks: Iterable[tuple[int, str, str]]) -> None:
        """Add chunks of a file: index, heading and text; they are found once the file is shown."""
        number = self._numbers.get(file_id)
        execute = self._connection.execute
        if number is None:
            number = execute("INSERT INTO files (file) VALUES (?)", (file_id,)).lastrowid or 0
            self._numbers[file_id], self._live[file_id] = number, 0
        execute("BEGIN")
        for position, heading, text in chunks:
            row = execute("INSERT INTO chunks (file, pos) VALUES (?, ?)", (number, position)).lastrowid
            execute("INSERT INTO words (rowid, heading, text) VALUES (?, ?, ?)", (row, heading, text))
            self._live[file_id] += 1
            self.size += len(heading) + len(text)
        execute("COMMIT")

    def show(self, file_id: str) -> None:
        """Let the chunks of a file be found."""
        if file_id in self._numbers:
            self._connection.execute("UPDATE files SET found = 1 WHERE n = ?", (self._numbers[file_id],))

    def remove(self, file_id: str) -> None:
        """Let the chunks of a file be found no more."""
        number = self._numbers.pop(file_id, None)
        if number is not None:
            self._connection.execute("UPDATE files SET found = 0 WHERE n = ?", (number,))
            self._dead += self._live.pop(file_id)

    def search(self, words: Sequence[str], most: int, files: Collection[str] | None = None) -> list[TextHit]:
        """The best chunks that hold some of these words; of these files where given."""
        execute = self._connection.execute
        counts = {word: execute(_COUNT, (f'"{word}"',)).fetchone()[0] for word in clean_words(words)}
        match, scale = match_of(counts, most)
        if not match or most <= 0:
            return []
        values: dict[str, object] = {"words": match, "scale": scale, "most": most}
        values["files"] = None if files is None else json.dumps(list(files))
        return [TextHit(*row) for row in execute(_SEARCH, values)]
