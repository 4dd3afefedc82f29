"""What the algorithms of a kind share: settings, policies, learners."""
