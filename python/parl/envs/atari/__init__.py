"""Atari 2600 games as Gymnasium environments.

``vector`` is :class:`parl.AtariVectorEnv` on the CPU and ``cuda`` the same on a CUDA device, with its
environment groups in ``groups`` and its sliding observations in ``sliding``. ``single`` is one environment
for ``gymnasium.make``. ``presets`` holds named settings and ``registration`` the Gymnasium ids.

This package imports none of its modules: ``registration`` is loaded while Gymnasium is being imported.
"""
