"""The admission policies. Each module holds the policies for one subject."""
