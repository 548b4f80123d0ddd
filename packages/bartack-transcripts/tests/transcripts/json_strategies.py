"""JSON that programs write and Bartack may not store as it is: halves of surrogate pairs, numbers of any size."""

from hypothesis import strategies as st

words = st.text(st.characters(exclude_categories=()), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2))
