"""llama.cpp engines on the nodes of a Ray cluster: each is a Ray actor, and a server asks it as it asks any engine.

Where an engine runs, when it is started anew and which nodes are well is Ray's to know; nothing of that is done here.
"""
