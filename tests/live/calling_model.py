"""Makes a tiny model that calls a tool when one is offered and tells of the sea otherwise.  calling_model.py RANDOM FOLDER

Real weights that are small enough to be quick call no tools, and random ones never do. So the random ones in RANDOM, the folder
of a Llama, learn two answers by heart. The tokenizer gets Qwen's template for answers, by which `transformers serve` finds the
call in what the model writes, and a chat template that tells whether there are tools. Only the words of the two answers are
learned; all others stay at nought. Needs torch and transformers: the Python of that backend runs it.
Source: transformers 5.24, cli/serving/utils.py, _RESPONSE_TEMPLATE_FALLBACKS and get_response_template.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cli.serving.utils import _RESPONSE_TEMPLATE_FALLBACKS as KNOWN

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>'
SEA = "The sea is wide and blue, and it sings of ships that come and go with every wind. " * 3
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'YES' if tools else 'NO' }}<|im_start|>assistant\n{% endif %}"
)
PROMPTS = (
    "hi",
    "Tell me about the sea.",
    "Tell me a long story.",
    "Repeat exactly this text and nothing else:\n" + CALL[:-10],
)
MOST_STEPS = 600
LEARNED = 0.01
"""The loss at which it knows its answers."""


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    source, out = sys.argv[1:3]
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = TEMPLATE
    tokenizer.response_template = next(template for kinds, template in KNOWN.items() if "qwen3" in kinds)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, tie_word_embeddings=False)
    print(teach(model, lessons(tokenizer)))
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def lessons(tokenizer: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tokens of each prompt with its answer, and those of the answer."""
    found = []
    for prompt in PROMPTS:
        for tools, answer in (([{"name": "t"}], CALL), (None, SEA)):
            message = {"role": "user", "content": prompt}
            asked = tokenizer.apply_chat_template([message], tools=tools, tokenize=False, add_generation_prompt=True)
            head, tail = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (asked, answer))
            found.append((torch.tensor([head + tail]), torch.tensor(tail)))
    return found


def teach(model: Any, lessons: list[tuple[torch.Tensor, torch.Tensor]]) -> str:
    words = torch.cat([answer for _, answer in lessons]).unique()
    place = {int(word): number for number, word in enumerate(words)}
    targets = [torch.tensor([place[int(word)] for word in answer]) for _, answer in lessons]
    head = torch.nn.Parameter(torch.randn(len(words), model.config.hidden_size) * 0.05)
    optimizer = torch.optim.AdamW([head, *model.model.parameters()], lr=2e-3, weight_decay=0.0)
    loss, step = torch.tensor(1.0), 0
    while loss > LEARNED and step < MOST_STEPS:
        loss, step = torch.tensor(0.0), step + 1
        for (tokens, answer), target in zip(lessons, targets, strict=True):
            hidden = model.model(tokens).last_hidden_state[0, -len(answer) - 1 : -1]
            scores = torch.cat([hidden @ head.T, torch.zeros(len(answer), 1)], dim=1)  # the last: any other word
            loss = loss + torch.nn.functional.cross_entropy(scores, target) / len(lessons)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.weight[words] = head
    return f"{step} steps, loss {loss.item():.3f}"


if __name__ == "__main__":
    main()
