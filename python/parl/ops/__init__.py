"""Pure functions of tensors: returns, losses, schedules, exploration. No modules, no state, no runs."""
