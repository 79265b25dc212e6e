"""Several replicas of one model behind one name: which of them a turn goes to, and what happens when one is lost."""
