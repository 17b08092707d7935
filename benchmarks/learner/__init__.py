"""Experiments on what learns: users never seen, recurring questions, other corpora, what each part adds, and harm."""
