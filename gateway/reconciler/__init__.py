"""What every replica does about runs that nobody executes any more: expiry, look-ups, saves. Never a POST (import contract)."""
