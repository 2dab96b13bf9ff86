"""The admission policies. Each module of this package has the admission policies for one subject."""
