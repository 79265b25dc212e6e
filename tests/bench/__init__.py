"""The benchmark behind `make bench`: what one CPU-second of the server buys, beside what the machine could do at best.

Figures are per CPU-second of the server's process tree, never wall time, and each is the best of several rounds in
which all measurements take turns: on a shared machine noise only ever makes a figure worse.
"""
