"""Faults: what goes wrong on purpose, by rule - conflicts, lost connections, refusals, stalls.

Here live the rules (`fault`), their files (`file`), and what decides about a statement or a connection (`injector`).
Nothing here touches a socket: the gateway carries out what was decided.
"""
