"""Noise: the only room that draws any for privacy."""
