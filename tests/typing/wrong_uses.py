"""Wrong calls that type checkers report; `make lint` fails if one of these errors does not occur."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

import parl

parl.PriorityReplay(10, {})  # type: ignore[attr-defined]
parl.train("dqn", totl_steps=3)  # type: ignore[call-arg]
parl.make_vec("pong", stack_num="4")  # type: ignore[arg-type]
parl.AtariVectorEnv("pong", stack=4)  # type: ignore[call-arg]
parl.PrioritizedReplay(10, {}, alhpa=0.5)  # type: ignore[call-arg]
parl.resume("runs/1", gamma=0.9)  # type: ignore[call-arg]
parl.train("dqn", torso=3)  # type: ignore[arg-type]
parl.register_algorithm("mine", 3)  # type: ignore[arg-type]
