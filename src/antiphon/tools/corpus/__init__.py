"""Tools over the documents in vector stores: OpenAI's `file_search` and those of hosted corpus search."""
