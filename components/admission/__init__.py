"""The component of admission, and the policies that guard what agents write."""
