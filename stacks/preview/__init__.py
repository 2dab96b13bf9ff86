"""`make preview`: Runs Pulumi's preview under the policy pack, and shows the result on one screen: changes, seating
chart and verdict.
"""
