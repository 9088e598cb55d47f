"""Python API: the same text from three methods, with how many tokens each target pass committed.

treegraft pull smollm2-135m
python examples/generate.py
"""

from treegraft import LLM, SamplingParams

PROMPT = "<|im_start|>user\nName three uses of a wooden spoon.<|im_end|>\n<|im_start|>assistant\n"


def main() -> None:
    params = SamplingParams(max_tokens=48, temperature=0.7, seed=3)
    for method in ("ar", "dflash", "ddtree"):
        with LLM("smollm2-135m", method=method) as llm:
            completion = llm.generate(PROMPT, params)[0]
        rounds = len(completion.accept_lengths)
        print(f"{method}: {len(completion.token_ids)} tokens in {rounds} rounds, tau {completion.tau:.2f}")
        print(completion.text)


if __name__ == "__main__":
    main()
