"""Replacements for the clock and for commands in shared memory, for tests without workers."""


class FakeClock:
    """Replaces the module ``time``; ``sleep`` advances it and calls ``meanwhile``."""

    def __init__(self, now=100.0):
        self.now, self.slept, self.meanwhile = now, [], lambda: None

    def monotonic(self):
        return self.now

    perf_counter = monotonic

    def perf_counter_ns(self):
        return round(self.now * 1e9)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        self.meanwhile()


class ScriptedCounters:
    """Counters whose command takes the next of these values at each read; functions are called."""

    def __init__(self, counters, *commands):
        self._counters, self._commands = counters, iter(commands)

    def __getattr__(self, name):
        return getattr(self._counters, name)

    @property
    def command(self):
        command = next(self._commands)
        return command() if callable(command) else command
