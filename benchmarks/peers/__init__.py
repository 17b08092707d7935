"""A race against other memories: the same machine, the same turns, the same embeddings, no language model."""
