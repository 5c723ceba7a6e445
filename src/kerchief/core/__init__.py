"""The ground: words, errors, randomness, small linear algebra, links, validation."""
