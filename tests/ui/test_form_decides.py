"""The New page says before anything runs which comparisons the repetitions can decide."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made


def test_the_form_says_what_can_be_decided_before_anything_runs(tab):
    """By default the repetitions suffice; the question is judged alone and needs fewer pairs."""
    page = tab.open("new")
    tab.refusals = {422}
    plan = page.locator(".verdict")
    expect(plan).to_contain_text("28 runs")
    expect(plan).to_contain_text("Each of 2 comparisons alone: 7 pairs can decide it; 7 suffice.")
    page.get_by_label("Repetitions", exact=True).fill("6")
    expect(plan).to_contain_text("6 pairs cannot decide it, whatever the times; at least 7 repetitions can.")
    asked = page.get_by_label("Comparison that answers it")
    asked.fill("scheduler=task,threads=2 vs scheduler=fork-join,threads=2")
    expect(plan).to_contain_text("The question (task, 2 threads against fork-join, 2 threads): 6 pairs can decide it")
    expect(plan).to_contain_text("The other comparison: 6 pairs can decide it; 6 suffice.")
    command = page.locator("pre.command").first
    expect(command).to_contain_text("--primary 'scheduler=task,threads=2 vs scheduler=fork-join,threads=2'")
    asked.fill("scheduler=task vs scheduler=fork-join,threads=2")
    expect(page.locator("#primary-refused")).to_contain_text("these are of 2. Variants differ in scheduler")
    asked.fill("task")
    expect(page.locator("#primary-refused")).to_contain_text('"task"')


def test_the_form_disables_settings_that_inference_does_not_read(tab):
    page = tab.open("new")
    page.locator("summary", has_text="More settings").click()
    rate, command = page.get_by_label("lr", exact=True), page.locator("pre.command").first
    expect(page.get_by_role("checkbox", name="last", exact=True)).to_be_disabled()  # of logits
    rate.fill("0.01")
    expect(command).to_contain_text("--lr 0.01")
    page.get_by_role("checkbox", name="infer", exact=True).check()
    expect(rate).to_be_disabled()
    expect(page.locator("#set-lr-help")).to_have_text("Not used: mode infer updates no weight.")
    expect(page.get_by_role("checkbox", name="last", exact=True)).to_be_enabled()
    expect(command).to_contain_text("--mode infer")
    expect(command).not_to_contain_text("--lr")


def test_the_form_disables_settings_that_generation_does_not_read(tab):
    tab.refusals = {422}  # until there is a prompt
    page = tab.open("new")
    page.locator("summary", has_text="More settings").click()
    page.get_by_role("checkbox", name="infer", exact=True).check()
    prompt, batch, command = page.locator("#set-prompt"), page.locator("#set-batch"), page.locator("pre.command").first
    expect(page.locator("#set-prompt-help")).to_have_text("Not used: only generate reads it.")
    expect(prompt).to_be_disabled()
    batch.fill("4")
    expect(command).to_contain_text("--batch 4")
    page.locator("#set-generate").fill("3")
    expect(prompt).to_be_enabled()
    expect(batch).to_be_disabled()
    why = "Not used: a step reads one token of one sequence, so it follows from generate."
    expect(page.locator("#set-batch-help")).to_have_text(why)
    expect(page.get_by_role("checkbox", name="last", exact=True)).to_be_disabled()  # of logits
    prompt.fill("5, 7")
    expect(command).to_contain_text("--generate 3")
    expect(command).not_to_contain_text("--batch")
    expect(page.get_by_role("button", name=re.compile("^Run [0-9]+ runs$"))).to_be_enabled()  # the server accepts it
    page.locator("#set-generate").fill("0")
    expect(batch).to_be_enabled()
