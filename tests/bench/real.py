from tests.bench.probe import Probe


class Real(Probe):
    name = "real"
