"""The alerting rules, a module a subject, each with a pure `rules(args)`."""
