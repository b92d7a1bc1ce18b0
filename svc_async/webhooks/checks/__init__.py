"""Checks of what a receiver, its acknowledgement and its stores are given, before a delivery needs it."""
