"""The rules of the advice: one table, the findings by what they are about."""
