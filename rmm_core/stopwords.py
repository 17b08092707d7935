"""English function words: what a query's words, and an answer's, are told apart without.

Left in are those that are also names or nouns ("may", "will", "us").
"""

STOP_WORDS = frozenset(
    """a about all also am an and any are as at be been but by can could did do does don for from had has have he her
    him his how i if in into is it its just ll m me my no not of on or our re s she should so some t than that the
    their them then there these they this those to too ve was we were what when where which while who with would you
    your""".split()
)
