"""Admission: validation, moderation, quota, and the gate that puts the checks in their one order."""
