"""The report in a real browser: what a reviewer sees, does by keyboard, and prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from browser import Page, browser, installed
from made_sweeps import CRASHED, DRAFTED, FAULTY, HEALTHY, REFUSED, Arm, grid, make_store

from matrixrun.evidence.cells import Speculation
from matrixrun.signoff.html import render
from matrixrun.signoff.page import Page as ReportPage
from matrixrun.signoff.page import build_page
from matrixrun.signoff.report import write_report

pytestmark = pytest.mark.skipif(
    installed() is None, reason="no Chromium is installed: apt-get install chromium"
)

NGRAM = Speculation(method="ngram", num_speculative_tokens=3)
BROKEN = "vllm.tiny-dense.pc-on.draft_model-k3.b8"
HOSTILE = Arm(text="</script><script>document.title='owned'</script><img src=x onerror=alert(1)>")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 16 cells: two fail, one crashes, one is refused, one answers with markup."""
    odd = {
        BROKEN: FAULTY,
        "vllm.tiny-dense.tp2.pc-on.draft_model-k3.b8": FAULTY,
        "vllm.tiny-dense.tp2.pc-off.draft_model-k3.b1": CRASHED,
        "vllm.tiny-dense.tp2.pc-off.ngram-k3.b1": REFUSED,
        "vllm.tiny-dense.pc-off.ngram-k3.b1": HOSTILE,
    }
    axes = {"tensor_parallel_size": [1, 2], "prefix_caching": [True, False]}
    cells = grid(**axes, speculation=[NGRAM, DRAFTED], batch_size=[1, 8])
    store = make_store(
        tmp_path_factory.mktemp("report") / "sweep",
        [(cell, odd.get(cell.id, HEALTHY)) for cell in cells],
    )
    return write_report(store)


@pytest.fixture(scope="module")
def data(report: Path) -> ReportPage:
    from matrixrun.record import Store

    return build_page(Store.open(report.parent))


def text(page: Page, selector: str) -> str:
    """What a person reads in an element."""
    return str(page.ask(f"document.querySelector({selector!r}).innerText"))


def test_a_reviewer_sees_at_the_top_what_broke_and_which_settings_do_it(
    page: Page, report: Path, tmp_path: Path
) -> None:
    page.open(report, width=1400, height=1000)
    page.photograph(tmp_path / "top.png")

    assert "3 of 16 cells at fault" in text(page, "#verdict")
    assert "batch_size=8 and prefix_caching=true and speculation.method=draft_model" in text(
        page, "#why"
    ).replace("\n", " ")
    for section, fold in (("#verdict", 400), ("#why", 700), ("#matrix", 1000)):
        assert page.ask(f"document.querySelector('{section}').getBoundingClientRect().top") < fold


def test_the_page_asks_for_nothing_and_complains_of_nothing(page: Page, report: Path) -> None:
    page.open(report, f"cell={BROKEN}")

    assert [url.partition("#")[0] for url in page.requests] == [report.as_uri()]
    assert page.complaints == []


def test_every_cell_has_a_sign_and_a_word_besides_its_colour(page: Page, report: Path) -> None:
    page.open(report)

    words = page.ask("[...document.querySelectorAll('.grid button')].map((b) => b.innerText)")

    assert len(words) == 16
    kinds = {word.split()[1]: word.split()[0] for word in words}
    assert kinds == {"PASS": "✓", "FAIL": "✗", "ERROR": "!", "REFUSED": "-"}


def test_a_failing_cell_shows_tokens_probabilities_and_how_it_was_run(
    page: Page, report: Path
) -> None:
    page.open(report, f"cell={BROKEN}")

    shown = text(page, "#detail")

    assert "UNEXPLAINED by every off evaluation" in shown
    assert "the off arm prefers another token by 4 nats (54.6 times as likely)" in shown
    assert "90.5 %" in shown
    assert "--speculative-config" in shown
    assert "vllm" in shown
    assert page.ask("document.querySelectorAll('#detail .tokens .here').length") > 0
    assert page.ask("document.querySelectorAll('#detail svg path.on').length") >= 2


def test_what_a_model_wrote_is_text_and_never_markup(page: Page, report: Path) -> None:
    page.open(report, "cell=vllm.tiny-dense.pc-off.ngram-k3.b1")

    assert page.ask("document.title") == "made: " + page.ask("data.head.sweep")
    assert page.ask("document.querySelectorAll('img').length") == 0


def test_a_cell_is_found_opened_and_left_by_keyboard_alone(page: Page, report: Path) -> None:
    page.open(report)

    page.press("/")
    assert page.ask("document.activeElement.id") == "search"
    for letter in "draft pc-on b8":
        page.press(letter)
    assert "2 of 16 cells" in text(page, "#count")
    page.ask("document.querySelector('#multiples button[tabindex=\"0\"]').focus()")
    first = page.ask("document.activeElement.dataset.cell")
    page.press("ArrowDown")
    assert page.ask("document.activeElement.dataset.cell") != first
    page.press("Enter")
    assert page.ask("document.activeElement.id") == "detail"
    opened = text(page, "#detail h2")
    page.press("k")
    assert text(page, "#detail h2") != opened
    page.press("Escape")
    assert page.ask("document.getElementById('detail').hidden") is True
    assert page.ask("document.activeElement.closest('.grid') !== null") is True


def test_a_verdict_can_be_hidden_and_the_address_says_so(page: Page, report: Path) -> None:
    page.open(report)

    page.ask("document.querySelector('[data-verdict=PASS]').click()")

    assert "4 of 16 cells" in text(page, "#count")
    assert "hide=PASS" in page.ask("location.hash")


def test_the_axes_of_the_matrix_can_be_chosen(page: Page, report: Path) -> None:
    page.open(report, "rows=prefix_caching&cols=batch_size")

    captions = page.ask("[...document.querySelectorAll('.grid caption')].map((c) => c.innerText)")

    assert len(captions) == 4
    assert all("tp" in caption for caption in captions)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_readable_in_light_and_dark(page: Page, report: Path, dark: bool) -> None:
    page.open(report, f"cell={BROKEN}")
    page.dark(dark)

    worst = page.ask(CONTRAST)

    assert worst[0] >= 4.5, worst
    page.dark(False)


# The least contrast (WCAG 2) of any text with its background.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("body *:not(script):not(option)")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !node.offsetParent || node.disabled) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 200)];
  }
  return worst;
})()"""


@pytest.mark.parametrize("anchor", ["", f"cell={BROKEN}"])
def test_a_narrow_window_never_scrolls_sideways(page: Page, report: Path, anchor: str) -> None:
    page.open(report, anchor, width=420, height=900)

    assert page.ask("document.documentElement.scrollWidth") <= 420


def test_paper_holds_the_evidence_of_what_failed(page: Page, report: Path, tmp_path: Path) -> None:
    page.open(report)
    page.ask("window.dispatchEvent(new Event('beforeprint'))")

    assert page.ask("document.querySelectorAll('.print-cell').length") == 3
    assert page.paper(tmp_path / "report.pdf").stat().st_size > 20_000
    page.ask("window.dispatchEvent(new Event('afterprint'))")
    assert page.ask("document.querySelectorAll('.print-cell').length") == 0


def test_a_sweep_without_a_verdict_yet_has_a_page_too(
    page: Page, data: ReportPage, tmp_path: Path
) -> None:
    head = msgspec.structs.replace(data.head, exit_code=2, exit_text="incomplete")
    empty = msgspec.structs.replace(
        data, head=head, axes=(), rows=(), localised=(), groups=(), details=(), pending=("a.b",)
    )
    path = tmp_path / "empty.html"
    path.write_text(render(empty), encoding="utf-8")

    page.open(path)

    assert "Incomplete: 1 of 1 cell" in text(page, "#verdict")
    assert "a.b" in text(page, "#pending")
    assert page.complaints == []


def test_a_cell_shows_what_each_arm_got_right_of_a_task(
    page: Page, data: ReportPage, tmp_path: Path
) -> None:
    figures = {"documents": 60.0, "right.on": 0.5, "right.off": 0.75, "right.null": 0.7,
               "lost": 16.0, "gained": 1.0, "p_value": 0.00014}  # fmt: skip
    known = {f"accuracy/{name}": value for name, value in figures.items()}
    first = msgspec.structs.replace(data.details[0], metrics=data.details[0].metrics | known)
    path = tmp_path / "accuracy.html"
    path.write_text(
        render(msgspec.structs.replace(data, details=(first, *data.details[1:]))), encoding="utf-8"
    )

    page.open(path)
    page.ask("openCell(0)")

    told = text(page, "#detail")
    assert "Task accuracy" in told
    assert "75 %" in told
    assert "16 and 1 (p = 0.00014)" in told
    page.ask("openCell(1)")
    assert "Task accuracy" not in text(page, "#detail")


def test_three_thousand_cells_stay_quick(page: Page, data: ReportPage, tmp_path: Path) -> None:
    copies = 200
    axis = data.axes[0]
    more = msgspec.structs.replace(
        axis, values=tuple(f"{word}-{i}" for i in range(copies) for word in axis.values)
    )
    rows = tuple(
        msgspec.structs.replace(
            row, id=f"{i}.{row.id}", at=(row.at[0] + len(axis.values) * i, *row.at[1:])
        )
        for i in range(copies)
        for row in data.rows
    )
    large = msgspec.structs.replace(
        data, axes=(more, *data.axes[1:]), rows=rows, details=data.details * copies
    )
    path = tmp_path / "large.html"
    path.write_text(render(large), encoding="utf-8")

    page.open(path)
    assert page.ask("document.querySelectorAll('.grid button').length") == 16 * copies
    assert page.ask("performance.now()") < 60_000
    for action, seconds in (("openCell(1500)", 5.0), ("state.q = 'b8 draft'; refresh()", 10.0)):
        took = page.ask(f"(() => {{ const t = performance.now(); {action}; document.body.offsetTop;"
                        " return performance.now() - t; })()")  # fmt: skip
        assert took < 1000 * seconds, action


def test_a_covering_sweep_shows_which_combinations_were_covered(page: Page, tmp_path: Path) -> None:
    from test_report import covering_sweep

    page.open(write_report(covering_sweep(tmp_path / "sweep")))

    assert "allowed cells of the full grid" in text(page, "#covered")
    assert "tensor_parallel_size \u00d7 speculation" in text(page, "#covered")
    assert "tp2 with draft_model-k3" in text(page, "#covered")


def test_notices_are_counted_on_top_and_marked_in_matrix_and_list(
    page: Page, tmp_path: Path
) -> None:
    cells = grid(batch_size=[1, 8])
    store = make_store(tmp_path / "s", [(cells[0], HEALTHY), (cells[1], Arm(ties=20))])
    page.open(write_report(store))

    assert "1 notice in 1 cell" in text(page, "#notices")
    assert "numerics-changed (1 cell)" in text(page, "#notices")
    assert page.ask("document.querySelectorAll('.grid .noted').length") == 1
    assert "† 1 notice: numerics-changed" in text(page, "#list")


def test_labels_of_rows_stay_on_one_line_on_a_telephone(page: Page, tmp_path: Path) -> None:
    cells = grid(quantization=["none", "q4_k_m-imatrix-large-2026"], speculation=[NGRAM, DRAFTED])
    store = make_store(tmp_path / "s", [(cell, HEALTHY) for cell in cells])
    page.open(write_report(store), width=400, height=800)

    heights = page.ask(
        "[...document.querySelectorAll('.grid th[scope=row]')].map((h) => h.offsetHeight"
        " / parseFloat(getComputedStyle(h).lineHeight))"
    )
    assert heights
    assert max(heights) < 2.2
    assert page.ask("document.documentElement.scrollWidth") <= 400


def test_verdicts_that_their_evidence_does_not_give_are_not_shown_as_good(
    page: Page, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "s", [(cell, Arm(accept=None)) for cell in grid(batch_size=[1])])
    for result in store.results():
        file = store.cell_folder(result.cell.id) / "result.json"
        file.write_text(file.read_text().replace('"INACTIVE"', '"PASS"'))
    page.open(write_report(store))

    assert page.ask("document.querySelector('#verdict').className") == "banner bad"
    assert "is PASS, its evidence gives INACTIVE" in text(page, "#verdict")


def test_a_sweep_of_refusals_is_not_green(page: Page, tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", [(cell, REFUSED) for cell in grid(batch_size=[1, 8])])
    page.open(write_report(store))

    assert page.ask("document.querySelector('#verdict').className") == "banner open"
    assert "Nothing was measured: all 2 cells refused" in text(page, "#verdict")
