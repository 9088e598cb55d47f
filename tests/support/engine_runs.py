"""Runs requests through an engine to the end and keeps what came out."""

from treegraft.engine.request import Request, SamplingParams


class Result:
    """A finished request: ids, text, reason, accept_lengths, cached_tokens."""

    def __init__(self, outputs):
        self.ids = [i for output in outputs for i in output.token_ids]
        self.text = "".join(output.text for output in outputs)
        self.reason = outputs[-1].finish_reason
        self.accept_lengths = [output.accept_length for output in outputs if output.accept_length]
        self.cached_tokens = outputs[-1].cached_tokens
        self.seed = outputs[-1].seed
        assert all(output.finish_reason is None for output in outputs[:-1])
        assert sum(self.accept_lengths) + 1 == len(self.ids)


def run_jobs(engine, jobs):
    """Run [(prompt, SamplingParams)] together to the end; a Result each."""
    outputs = {}
    for number, (prompt, params) in enumerate(jobs):
        engine.add(Request(id=f"r{number}", prompt_token_ids=tuple(prompt), params=params))
        outputs[f"r{number}"] = []
    while engine.has_work():
        for output in engine.step():
            outputs[output.request_id].append(output)
    return [Result(each) for each in outputs.values()]


def params(**fields):
    return SamplingParams(**({"max_tokens": 24, "seed": 7} | fields))
