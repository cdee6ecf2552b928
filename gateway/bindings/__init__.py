"""Which upstream an application is: providers, applications, their tokens (`vault`), fingerprints, and all of it at once (`resolve`)."""
