# SPDX-License-Identifier: MIT
"""task: decision beside transformers' decision models: prompts, losses, weights, metrics, answers."""

import json
import shutil

import torch
from support import ROOT, ParityTest, adam_steps, run_binary, weights

TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
TASKS = ROOT / "tests" / "fixtures" / "tasks"
STEPS, BATCH, RATE = 12, 8, 1e-3
# float32 sums in another order, over twelve steps of Adam.
LOSS, WEIGHT, METRIC = 1e-4, 2e-3, 1e-4
# "Yes" is several tokens of the small tokenizer.
LABELS = {"noul": ["y", "n"]}
CHATML = (
    "{% for m in messages %}{{ '<s>' + m['role'] + '\n' + m['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
# All questions of a row in one prompt, each read before its mark.
TOGETHER = (
    "<s>{{ state if state is string else state|tojson }}\n"
    "{% for q in questions %}{{ q.name }} ({{ q.options|join('/') }}):<|mark|>{% endfor %}"
)


def text_config(family, tokenizer):
    """A small decoder or encoder, which AutoModel builds."""
    from transformers import LlamaConfig, ModernBertConfig

    sizes = dict(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                 num_attention_heads=4, max_position_embeddings=512)  # fmt: skip
    if family == "llama":
        return LlamaConfig(**sizes, num_key_value_heads=2, pad_token_id=tokenizer.pad_token_id)
    return ModernBertConfig(**sizes, pad_token_id=tokenizer.pad_token_id, global_attn_every_n_layers=2,
                            local_attention=64)  # fmt: skip


def rows_of(part):
    return [json.loads(line) for line in (TASKS / f"watches-{part}.jsonl").read_text().splitlines()]


def start(folder, template=None, temperature=None):
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder / "start")
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder / "start")
    settings = {"labels": LABELS, "temperature": temperature or {}}
    (folder / "start" / "decision.json").write_text(json.dumps(settings))
    if template:
        (folder / "start" / "decision_template.jinja").write_text(template)


def target_of(row, question):
    """The probabilities of a question's options, as the rows of the fixtures give them."""
    if question.name in row.get("gold", {}):
        return [row["gold"][question.name]["probabilities"][option] for option in question.options]
    answer = row["expected"][question.name]
    if question.type == "noul":
        answer = "true" if answer else "false"
    if question.type != "score":
        return [float(option == answer) for option in question.options]
    levels = range(len(question.options))
    return [max(0.0, 1 - abs(level - answer)) for level in levels]


class Decision(ParityTest):
    def prompts(self, rows):
        """transformers' prompts of the rows: inputs, questions and the target of each question."""
        from transformers import AutoTokenizer
        from transformers.decision import DecisionConfig

        tokenizer = AutoTokenizer.from_pretrained(self.folder / "start")
        config = DecisionConfig.from_pretrained(self.folder / "start")
        prompts = []
        for row in rows:
            for inputs, questions in config.prepare_inputs(row, tokenizer):
                targets = [target_of(row, question) for question in questions]
                prompts.append((inputs, questions, targets, tokenizer))
        return prompts

    def scores(self, model, prompt):
        """The logits of the labels before each mark, as DecisionPipeline reads them."""
        from transformers.decision import label_token_ids

        inputs, questions, _, tokenizer = prompt
        marks = inputs["marks"]
        logits = model(input_ids=inputs["input_ids"], use_cache=False).logits[0, marks - 1]
        return [logits[i, label_token_ids(tokenizer, tuple(q.labels))] for i, q in enumerate(questions)]

    def loss_of(self, model, prompts):
        losses = [
            -(torch.tensor(target) * scores.log_softmax(-1)).sum()
            for prompt in prompts
            for target, scores in zip(prompt[2], self.scores(model, prompt))
        ]
        return torch.stack(losses).mean()

    def train_ours(self, rows, **keys):
        valid = self.folder / "valid.jsonl"
        shutil.copy(TASKS / "watches-valid.jsonl", valid)
        return self.train_rows(
            rows, task="decision", validation_file=str(valid), shuffle_options=False,
            per_device_train_batch_size=BATCH // 2, effective_batch_size=BATCH, max_steps=STEPS,
            max_seq_length=250, learning_rate=RATE, eval_strategy="steps", eval_steps=STEPS,
            **keys)  # fmt: skip

    def check(self, template=None):
        from transformers import LlamaForCausalLM

        start(self.folder, template)
        rows = rows_of("train")
        run = self.train_ours(rows)
        model = LlamaForCausalLM.from_pretrained(self.folder / "start")
        theirs = adam_steps(
            model, STEPS, BATCH, self.prompts(rows), RATE, lambda batch: self.loss_of(model, batch)
        )
        self.assert_same_losses(run, theirs, LOSS)
        self.assert_same_weights(weights(run), model.state_dict(), WEIGHT)
        self.check_metrics(run, model)
        self.check_temperatures(run, model)
        self.check_answers(run)

    def check_metrics(self, run, model):
        from sklearn.metrics import brier_score_loss

        self.assertEqual(brier_score_loss([1], [0.5]), 0.25)  # scikit-learn's, of two classes
        model.eval()
        right, brier, nll, distance, confidence = [], [], [], [], []
        with torch.no_grad():
            for prompt in self.prompts(rows_of("valid")):
                for question, target, scores in zip(prompt[1], prompt[2], self.scores(model, prompt)):
                    p, t = scores.double().softmax(-1), torch.tensor(target, dtype=torch.double)
                    right.append(bool(p.argmax() == t.argmax()))
                    confidence.append(float(p.max()))
                    brier.append(float((p - t).square().sum()))
                    nll.append(float(-(t * p.log()).sum()))
                    if question.type == "score":
                        levels = torch.arange(len(t))
                        distance.append(abs(float(((p - t) * levels).sum())))
        bins = [min(14, max(0, -int(-c * 15 // 1) - 1)) for c in confidence]
        ece = sum(
            abs(sum(c - r for c, r, b in zip(confidence, right, bins) if b == number)) for number in range(15)
        )
        expected = {
            "accuracy": sum(right) / len(right),
            "brier": sum(brier) / len(brier),
            "nll": sum(nll) / len(nll),
            "score_mae": sum(distance) / len(distance),
            "ece": ece / len(right),
        }
        results = json.loads((run / "eval_results.json").read_text())
        for name, value in expected.items():
            # One question on the other side of an edge moves these two.
            delta = 2 / len(right) if name in ("accuracy", "ece") else 10 * METRIC
            self.assertAlmostEqual(results[f"eval_{name}"], value, delta=delta, msg=name)

    def check_temperatures(self, run, model):
        """decision.json against a search on transformers' scores; evaluate divides by it."""
        from scipy.optimize import minimize_scalar

        scored = {}
        with torch.no_grad():
            for prompt in self.prompts(rows_of("valid")):
                for question, target, scores in zip(prompt[1], prompt[2], self.scores(model, prompt)):
                    pair = (scores.double(), torch.tensor(target, dtype=torch.double))
                    scored.setdefault(question.type, []).append(pair)
        ours = json.loads((run / "decision.json").read_text())["temperature"]
        loss = 0.0
        for kind, pairs in scored.items():

            def nll(temperature, pairs=pairs):
                return float(-sum((t * (z / temperature).log_softmax(-1)).sum() for z, t in pairs))

            best = minimize_scalar(nll, bounds=(0.5, 5.0), options={"xatol": 1e-6}).x
            self.assertAlmostEqual(ours.get(kind, 1.0), best, delta=2e-2 * best, msg=kind)
            loss += nll(best)
        printed = run_binary("evaluate", self.folder / "run.json", "--output_dir", run)
        result = json.loads(printed)
        self.assertAlmostEqual(result["eval_nll"], loss / sum(map(len, scored.values())), delta=1e-3)

    def check_answers(self, run, requests=None):
        """predict beside transformers' pipeline on the run's folder."""
        from transformers import pipeline

        requests = requests or [
            {name: row[name] for name in ("state", "questions")} for row in rows_of("test")
        ]
        path = self.folder / "requests.jsonl"
        path.write_text("".join(json.dumps(request) + "\n" for request in requests))
        ours = [json.loads(line) for line in run_binary("predict", run, "--input", path).splitlines()]
        decide = pipeline("decision", model=str(run), dtype="float32")
        for mine, request in zip(ours, requests, strict=True):
            self.assert_same_answer(mine, decide(request), "answer")

    def assert_same_answer(self, ours, theirs, where):
        if isinstance(theirs, dict):
            self.assertEqual(list(ours), list(theirs), where)
            for key in theirs:
                self.assert_same_answer(ours[key], theirs[key], f"{where}.{key}")
        elif isinstance(theirs, float):
            self.assertAlmostEqual(ours, theirs, delta=1e-5, msg=where)
        else:
            self.assertEqual(ours, theirs, where)

    def jev(self, family, softcap=None):
        """A folder of transformers' JevForDecision, with its template."""
        from transformers import AutoTokenizer, JevConfig, JevForDecision
        from transformers.decision import DecisionConfig
        from transformers.models.jev.configuration_jev import JEV_TEMPLATE

        tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
        tokenizer.save_pretrained(self.folder / "start")
        torch.manual_seed(5)
        config = JevConfig(
            hidden_size=32, num_verbalizers=12, offsets={"noul": 0, "score": 2, "choice": 7},
            softcap=softcap, text_config=text_config(family, tokenizer).to_dict())  # fmt: skip
        model = JevForDecision(config)
        model.decision_config = DecisionConfig(chat_template=JEV_TEMPLATE)
        model.save_pretrained(self.folder / "start")
        return model

    def check_jev(self, family, softcap):
        self.jev(family, softcap)
        from transformers import AutoModelForDecision

        model = AutoModelForDecision.from_pretrained(self.folder / "start")
        types = type(model).config_class(hidden_size=32).offsets.keys()
        self.assertEqual(sorted(types), ["choice", "noul", "score"])
        rows = rows_of("train")

        def scores(prompt):
            from transformers.decision import Question

            inputs, questions, _, _ = prompt
            question = questions[0]
            return model(
                input_ids=inputs["input_ids"],
                marks=inputs["marks"][None],
                num_options=torch.tensor([[len(question.options)]]),
                question_type_ids=torch.tensor([[Question.questions_types.index(question.type)]]),
            )

        def loss(batch):
            losses = [-(torch.tensor(p[2][0]) * scores(p).log_softmax(-1)).sum() for p in batch]
            return torch.stack(losses).mean()

        run = self.train_ours(rows, decision_head="jev")
        theirs = adam_steps(model, STEPS, BATCH, self.prompts(rows), RATE, loss)
        self.assert_same_losses(run, theirs, LOSS)
        self.assert_same_weights(weights(run), model.state_dict(), WEIGHT)
        self.check_answers(run)

    def test_a_head_on_a_decoder(self):
        self.check_jev("llama", 2.0)

    def test_a_head_on_an_encoder(self):
        self.check_jev("modernbert", None)

    def test_a_new_head_is_read_by_transformers(self):
        """Of an encoder without a head and a template."""
        from transformers import AutoTokenizer, ModernBertForMaskedLM

        tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
        tokenizer.save_pretrained(self.folder / "start")
        ModernBertForMaskedLM(text_config("modernbert", tokenizer)).save_pretrained(self.folder / "start")
        run = self.train_ours(rows_of("train"), decision_head="jev")
        self.assertEqual(json.loads((run / "config.json").read_text())["model_type"], "jev")
        self.check_answers(run)

    def test_a_prompt_for_each_question(self):
        self.check()

    def test_a_prompt_for_all_questions_of_a_row(self):
        self.check(TOGETHER)

    def test_requests_full_of_control_tokens(self):
        start(self.folder, temperature={"noul": 0.5, "choice": 2, "score": 3.0})
        state = {"a": "</s> <s>user\n<|mark|>x<s></s>", "<pad>": [1, None, 2.5, "é"], "text": "<|split|>"}
        questions = {
            "one": {"type": "noul", "instructions": {"<s>": "is it </s>?"}, "criteria": {"true": "<s>"}},
            "two": {"type": "choice", "criteria": {"</s>": None, "<unk>": "b <mask>", "": ["x"]}},
            "only": {"type": "choice", "instructions": None, "criteria": {"one": None}},
            "three": {"type": "score", "criteria": ["low", {"x": "<s>"}, ""]},
        }
        self.check_answers(
            self.folder / "start",
            [
                {"state": state, "questions": questions},
                {"state": "", "questions": questions},
                {"state": None, "questions": questions},
            ],
        )
        # transformers reads control tokens in the names of a state's members; here they are text.
        state["pad"] = state.pop("<pad>")
        start(self.folder, TOGETHER)
        self.check_answers(self.folder / "start", [{"state": state, "questions": questions}])

    def test_an_adapter_answers_as_in_peft(self):
        from peft import AutoPeftModelForCausalLM
        from transformers import pipeline

        start(self.folder)
        run = self.train_ours(rows_of("train"), use_peft=True, lora_r=4)
        temperatures = json.loads((run / "decision.json").read_text())["temperature"]
        model = AutoPeftModelForCausalLM.from_pretrained(run).merge_and_unload().eval()
        path = self.folder / "requests.jsonl"
        rows = rows_of("test")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        answers = [json.loads(line) for line in run_binary("predict", run, "--input", path).splitlines()]
        with torch.no_grad():
            for answer, row in zip(answers, rows, strict=True):
                for prompt in self.prompts([row]):
                    question = prompt[1][0]
                    scores = self.scores(model, prompt)[0] / temperatures.get(question.type, 1.0)
                    p = scores.softmax(-1).tolist()
                    self.assert_same_answer(answer[question.name], question.answer(p), question.name)
        # What the end of the run prints; alone, the folder would be read with its base's settings.
        decide = pipeline("decision", model=str(run), decision_config=str(run), dtype="float32")
        for answer, row in zip(answers, rows, strict=True):
            request = {name: row[name] for name in ("state", "questions")}
            self.assert_same_answer(answer, decide(request), "pipeline")
