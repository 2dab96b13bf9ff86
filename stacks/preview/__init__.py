"""`make preview`: Pulumi's preview under the policy pack, shown on one screen: changes, seating chart, verdict."""
