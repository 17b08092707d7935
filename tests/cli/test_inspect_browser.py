"""The page that shows a memory, in a browser: what people see, press and hear, and what hostile words can do to it."""

import os
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from rmm_cli import inspector
from rmm_cli.inspector.server import listening
from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.testing import HashEmbedder
from tests.cli.conftest import fill
from tests.cli.inspect_world import HOSTILE, HOSTILE_IDS, hostile_bank, large_bank
from tests.needed import missing

pytestmark = pytest.mark.enable_socket

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
DESKTOP, PHONE = {"width": 1200, "height": 800}, {"width": 360, "height": 740}
expect.set_options(timeout=20_000)  # milliseconds: CI's machine does other things beside
VIEWS = ["memories", "sessions", "answers", "learning", "ask"]


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; a test that asks for one skips without it, and fails in CI."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        missing("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory):
    """Where screenshots go."""
    folder = os.environ.get("RMM_ARTEFACTS")
    place = Path(folder) if folder else tmp_path_factory.mktemp("artefacts")
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def served(memory, *, write=False, store_name="memory.db"):
    with listening(memory, port=0, write=write, store_name=store_name) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The page of a small bank, to look at."""
    place = fill(tmp_path_factory.mktemp("bank") / "memory.db")
    with ReflectiveMemory.open(place, embedder=HashEmbedder(), config=RMMConfig(batch_size=1)) as memory:
        with served(memory) as url:
            yield url


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    memory = hostile_bank(tmp_path_factory.mktemp("hostile") / "memory.db")
    yield memory
    memory.store.close()


@pytest.fixture
def open_page(browser):
    """Opens pages, and sees to it that nothing went wrong on them: no dialog, no error, nothing from elsewhere."""
    opened, wrong = [], []

    def open_(address, *, viewport=DESKTOP, wait="main h1", offline=False, expected="nothing", **settings):
        context = browser.new_context(viewport=viewport, **settings)
        context.set_default_timeout(20_000)
        context.set_offline(offline)
        opened.append(context)
        page = context.new_page()
        page.on("dialog", lambda d: (wrong.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("console", lambda m: wrong.append(f"{m.type}: {m.text}") if expected not in m.text else None)
        page.on("pageerror", lambda e: wrong.append(f"error: {e}"))
        own = address.split("#")[0]
        page.on("request", lambda r: None if r.url.startswith(own) else wrong.append(f"loaded: {r.url}"))
        page.goto(address)
        page.wait_for_selector(wait)
        return page

    yield open_
    for context in opened:
        context.close()
    assert wrong == []


def focused(page):
    """What has the focus: its name in the document, its words, and whether one sees that it has it."""
    return page.evaluate("""() => {
        const e = document.activeElement;
        const seen = [e, e.nextElementSibling].some((x) => x && getComputedStyle(x).outlineStyle !== "none");
        return { tag: e.localName, id: e.id, text: e.textContent.trim(), seen, inDialog: Boolean(e.closest("dialog")) };
    }""")


# The lowest contrast of any text with what is behind it (WCAG 2.1).
CONTRAST = """() => {
    const parts = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => {
        const [r, g, b] = parts(color).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const color = getComputedStyle(e).backgroundColor;
            if ((parts(color)[3] ?? 1) > 0.99) return color;
        }
        return "rgb(255, 255, 255)";
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let worst = [99, ""];
    while (walker.nextNode()) {
        const e = walker.currentNode.parentElement;
        const text = walker.currentNode.data.trim();
        if (!text || !e.checkVisibility() || e.closest(".unseen, .skip, script")) continue;
        const color = getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"];
        const [a, b] = [light(color), light(behind(e))].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < worst[0]) worst = [contrast, text.slice(0, 40)];
    }
    return worst;
}"""


# -- looking -----------------------------------------------------------------------------


def test_from_users_to_a_memory_and_its_history(open_page, url, artefacts):
    page = open_page(url)
    page.screenshot(path=artefacts / "users.png")
    expect(page.locator(".users li")).to_have_count(2)
    assert "1 pending" in page.locator(".users li").nth(1).inner_text()
    page.click("text=ann")
    page.wait_for_selector(".timeline")
    assert page.locator("h1").inner_text() == "ann"
    entry = page.locator(".entry").first
    assert "Ann lives in Vienna, before in Graz." in entry.inner_text()
    assert "Ann lives in Graz." in entry.locator(".formerly").inner_text()
    page.screenshot(path=artefacts / "memories.png")
    entry.locator("a").click()
    expect(page.locator("#detail .events li")).to_have_count(5)
    events = page.locator("#detail .events li").all_inner_texts()
    assert [e.splitlines()[0].split("\t")[0].split(" ")[0] for e in events] == [
        "Ann",
        "Noted",
        "Ann",
        "Rewritten",
        "Cited",
    ]
    assert "I moved to Vienna in March." in events[2]
    page.screenshot(path=artefacts / "memory.png")
    page.click("#detail .close")
    expect(page.locator("#detail")).to_be_hidden()
    expect(page).to_have_url(re.compile("#/ann/memories$"))


def test_searching_narrows_and_says_how_far(open_page, url):
    page = open_page(f"{url}#/ann", wait=".timeline")
    page.fill("#search", "MARCH vienna")  # of the turn, and of the summary
    expect(page.locator(".count")).to_have_text("1 of 1 memory match")
    assert page.locator(".entry mark").all_inner_texts()[0] == "Vienna"
    page.fill("#search", "herons")
    expect(page.locator(".count")).to_have_text("0 of 1 memory match")
    assert "Nothing holds all of these words" in page.locator(".panel").inner_text()
    page.fill("#search", "")
    page.get_by_label("Unfiled turns").check()
    expect(page.locator(".count")).to_have_text("2 memories")
    assert page.locator(".count").get_attribute("role") == "status"


def test_sessions_are_told_with_their_turns_and_pending_ones_with_the_reason(open_page, url):
    page = open_page(f"{url}#/bob/sessions", wait=".rows")
    assert "2 turns not reflected: it is open" in page.locator(".rows").inner_text()
    assert page.locator(".turns li").count() == 0
    page.click(".rows summary")
    expect(page.locator(".turns > li")).to_have_count(2)
    assert page.locator(".turns .speaker").all_inner_texts() == ["Bob", "Assistant"]
    assert page.locator(".turns p.said").all_inner_texts() == ["I keep bees on the roof.", "Honey!"]


def test_answers_tell_what_they_were_shown_and_cited(open_page, url):
    page = open_page(f"{url}#/ann/answers", wait=".answers")
    assert "What was asked is not stored" in page.locator(".answers li").first.inner_text()
    assert page.locator(".slate .cited").all_inner_texts() == ["cited\nAnn lives in Vienna, before in Graz."]


def test_learning_is_a_curve_decisions_and_weights(open_page, url, artefacts):
    page = open_page(f"{url}#/ann/learning", wait=".curve svg")
    page.screenshot(path=artefacts / "learning.png", full_page=True)
    assert page.locator(".serves").inner_text() == "The base ranking serves"
    assert "after 1 answer" in page.locator(".curve svg").get_attribute("aria-label")
    assert page.locator(".decisions li").count() == 1
    assert page.locator(".weights tbody tr").count() == 14
    page.click(".as-table summary")
    expect(page.locator(".as-table tbody tr")).to_have_count(1)


def test_a_query_shows_both_orders_with_their_terms(open_page, url, artefacts):
    page = open_page(f"{url}#/ann/ask", wait="#query")
    page.fill("#query", "Where does Ann live?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ranking")
    assert page.locator(".columns h3").all_inner_texts() == ["Base order\nserves", "Learned order"]
    for column in (".prior", ".learned"):
        first = page.locator(f"{column} .ranking li").first.inner_text()
        assert "Vienna" in first
        assert "shown as 1" in first
    page.locator(".prior .terms summary").first.click()
    page.wait_for_selector(".prior .terms[open] tr")
    terms = page.locator(".prior .terms[open] tr").all_inner_texts()
    score = float(page.locator(".prior .ranking .meta").first.inner_text().split()[1])
    assert sum(float(t.split("\t")[1].replace("\u2212", "-")) for t in terms) == pytest.approx(score, abs=0.05)
    page.screenshot(path=artefacts / "query.png", full_page=True)
    page.hover(".learned .ranking li >> nth=0")
    expect(page.locator(".paired")).to_have_count(2)


# -- deleting ----------------------------------------------------------------------------


def test_nothing_can_be_deleted_unless_that_was_asked_for(open_page, url):
    page = open_page(f"{url}#/ann", wait=".timeline")
    page.click(".entry a")
    page.wait_for_selector("#detail[open]")
    assert page.locator("button:has-text('Delete'), button:has-text('Forget')").count() == 0


def test_a_memory_and_a_user_are_deleted_after_a_question(open_page, tmp_path, artefacts):
    with ReflectiveMemory.open(fill(tmp_path / "memory.db"), embedder=HashEmbedder()) as memory:
        with served(memory, write=True) as url:
            page = open_page(f"{url}#/ann", wait=".timeline")
            page.click(".entry a")
            page.click("text=Delete this memory")
            page.screenshot(path=artefacts / "delete.png")
            page.keyboard.press("Escape")  # not this time
            expect(page.locator("#confirm")).to_be_hidden()
            expect(page.locator("#detail")).to_be_visible()
            assert len(memory.memories("ann", kind="topic")) == 1
            page.click("text=Delete this memory")
            page.click("#confirm .danger")
            expect(page.locator("#status")).to_have_text("The memory is deleted.")
            assert memory.memories("ann", kind="topic") == ()
            expect(page.locator("dialog[open]")).to_have_count(0)
            page.click("text=Forget this user")
            page.click("#confirm .danger")
            expect(page.locator("#status")).to_have_text("The user is forgotten.")
            expect(page.locator(".users a")).to_have_text(["bob"])
            assert memory.users() == ["bob"]


def test_what_fails_is_told_where_it_failed(open_page, tmp_path):
    class Broken(HashEmbedder):
        def embed(self, texts):
            raise OSError("no weights")

    with ReflectiveMemory.open(fill(tmp_path / "memory.db"), embedder=Broken()) as memory:
        with served(memory) as url:
            page = open_page(f"{url}#/nobody", wait="main .error", expected="Failed to load resource")
            assert "nothing is stored of a user 'nobody'" in page.locator("main .error").inner_text()
            page.goto(f"{url}#/ann/ask")
            page.fill("#query", "Where?")
            page.click("text=Rank")
            expect(page.locator(".panel .error")).to_have_text("OSError: no weights")
        page.click("text=Rank")
        expect(page.locator(".panel .error")).to_contain_text("rmm inspect does not answer")


# -- for everybody -----------------------------------------------------------------------


def test_it_is_usable_by_keyboard_alone(open_page, url):
    page = open_page(f"{url}#/ann", wait=".timeline")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert (focused(page)["text"], focused(page)["seen"]) == ("Skip to content", True)
    page.keyboard.press("Enter")
    assert focused(page)["id"] == "main"
    reached = []
    while not reached or reached[-1]["tag"] != "a" or "Vienna" not in reached[-1]["text"]:
        page.keyboard.press("Tab")
        reached.append(focused(page))
        assert len(reached) < 20, reached
    assert all(stop["seen"] for stop in reached), [stop for stop in reached if not stop["seen"]]
    assert [stop["text"] for stop in reached[:5]] == ["Memories", "Sessions", "Answers", "Learning", "Query"]
    assert "search" in [stop["id"] for stop in reached]
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail[open]")
    assert focused(page)["text"] == "Close"
    for _ in range(4):  # round and round, and never behind the dialog
        page.keyboard.press("Tab")
        assert focused(page)["inDialog"] or focused(page)["tag"] == "body"
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    assert "Vienna" in focused(page)["text"]
    for _ in range(20):  # no trap: on to the end, and around
        page.keyboard.press("Tab")
        if focused(page)["text"] == "Skip to content":
            break
    else:
        pytest.fail("the focus does not come around")


def test_it_has_landmarks_names_and_a_language(open_page, url):
    page = open_page(f"{url}#/ann", wait=".timeline")
    assert page.locator("html").get_attribute("lang") == "en"
    for landmark in ("banner", "main", "contentinfo", "search"):
        assert page.get_by_role(landmark).count() == 1, landmark
    assert page.get_by_role("navigation", name="Views of this user").count() == 1
    assert page.title() == "Memories \u00b7 ann \u00b7 memory.db"
    unnamed = page.evaluate("""() => [...document.querySelectorAll("input, button, a, summary")]
        .filter((e) => !e.hidden && !e.textContent.trim() && !e.labels?.length).map((e) => e.outerHTML)""")
    assert unnamed == []
    page.click("text=Learning")
    page.wait_for_selector(".curve svg")
    expect(page.locator("[aria-current=page]")).to_have_text("Learning")
    assert page.get_by_role("img").get_attribute("aria-label").startswith("Share cited")


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", DESKTOP), ("dark", PHONE)], ids=["light on a desktop", "dark on a phone"]
)
def test_it_reads_well(open_page, url, artefacts, scheme, viewport):
    page = open_page(url, viewport=viewport, color_scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((v) => v < 60)")
    assert dark == (scheme == "dark")
    places = ["", *(f"#/ann/{view}" for view in VIEWS), "#/bob/sessions"]
    for place in places:
        page.goto(f"{url}{place}")
        page.wait_for_selector(".panel section" if place else ".users li")
        if place.endswith("learning"):
            page.wait_for_selector(".curve svg")
        if place.endswith("ask"):
            page.fill("#query", "Where does Ann live?")
            page.keyboard.press("Enter")
            page.wait_for_selector(".ranking")
            page.locator(".terms summary").first.click()
        if place.endswith("sessions"):
            page.locator(".rows summary").first.click()
        contrast, text = page.evaluate(CONTRAST)
        assert contrast >= 4.5, (place, text, contrast)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
    page.goto(f"{url}#/ann/memories")
    page.locator(".entry a").first.click()
    page.wait_for_selector("#detail[open]")
    page.evaluate("Promise.all(document.getAnimations().map((a) => a.finished)).then(() => true)")
    contrast, text = page.evaluate(CONTRAST)
    assert contrast >= 4.5, (text, contrast)
    box = page.locator("#detail").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= viewport["width"]
    page.screenshot(path=artefacts / f"{scheme}-{viewport['width']}.png")


# -- hostile words -----------------------------------------------------------------------


def check_hostile(page):
    """Look at everything of the hostile bank: every text is there, as a text."""
    page.wait_for_selector(".timeline")
    shown = page.locator(".entry a .said").evaluate_all("all => all.map((e) => e.textContent)")
    assert set(HOSTILE.values()) <= set(shown)
    formerly = page.locator(".formerly .said").evaluate_all("all => all.map((e) => e.textContent)")
    assert {f"formerly {text}" for text in HOSTILE.values()} <= set(formerly)
    assert all(box["height"] > 10 for box in (e.bounding_box() for e in page.locator(".entry a").all()))
    for link in page.locator(".entry a").all()[::4]:
        link.click()
        page.wait_for_selector("#detail[open]")
        assert page.evaluate("document.querySelector('#detail .scroll').scrollWidth <= innerWidth")
        page.keyboard.press("Escape")
    page.click(".views >> text=Sessions")
    page.locator(".rows details").evaluate_all("all => all.forEach((e) => { e.open = true; })")
    expect(page.locator(".turns")).to_have_count(page.locator(".rows details").count())
    said = page.locator(".turns p.said").evaluate_all("all => all.map((e) => e.textContent)")
    assert set(HOSTILE.values()) <= set(said)
    page.click(".views >> text=Answers")
    page.wait_for_selector(".answers .query")
    assert page.locator(".answers .query").evaluate_all("all => all.map((e) => e.textContent)") == [
        HOSTILE["end of script"]
    ]
    page.click(".views >> text=Query")
    page.fill("#query", HOSTILE["markup"])
    page.keyboard.press("Enter")
    page.wait_for_selector(".panel .count:not(:empty)")
    page.wait_for_selector(".ranking, .panel .timeline")
    made = page.evaluate(
        "document.querySelectorAll('img, iframe, object, embed, script[src], [onerror], [onload]').length"
    )
    assert made == 0
    assert page.locator("a").evaluate_all("all => all.every((a) => a.getAttribute('href').startsWith('#'))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_hostile_bank_is_shown_as_text(open_page, hostile, artefacts):
    with served(hostile, store_name=HOSTILE["markup"]) as url:
        page = open_page(url, viewport=PHONE)
        listed = page.locator(".users a .said").evaluate_all("all => all.map((e) => e.textContent)")
        assert set(HOSTILE_IDS) <= set(listed)
        addresses = page.locator(".users a").evaluate_all("all => all.map((e) => e.hash)")
        for user_id, address in zip(listed, addresses, strict=True):
            page.evaluate("address => { location.hash = address; }", address)
            expect(page.locator("h1")).to_have_js_property("textContent", user_id)
        page.goto(url + addresses[listed.index(HOSTILE["markup"])])
        check_hostile(page)
        page.screenshot(path=artefacts / "hostile.png", full_page=True)


# -- the file ----------------------------------------------------------------------------


def test_a_file_opens_from_disk_without_a_network(open_page, hostile, tmp_path, artefacts):
    place = tmp_path / "page.html"
    inspector.write_html(hostile, place, store_name=HOSTILE["end of script"])
    page = open_page(place.as_uri(), offline=True)
    assert "A copy of a store, written" in page.locator("footer").first.inner_text()
    page.fill("#find", "onerror")
    expect(page.locator(".users li")).to_have_count(1)
    page.click(".users a")
    check_hostile(page)
    assert "A file holds no embedder" in page.locator(".note").inner_text()
    assert page.locator("button:has-text('Delete'), button:has-text('Forget')").count() == 0
    page.click(".views >> text=Learning")
    page.wait_for_selector(".curve svg")
    page.screenshot(path=artefacts / "file.png", full_page=True)


# -- much of it --------------------------------------------------------------------------


def test_ten_thousand_memories_stay_usable(open_page, tmp_path):
    with large_bank(tmp_path / "memory.db", 10_000) as memory, served(memory) as url:
        page = open_page(f"{url}#/ann", wait=".timeline")
        assert page.locator(".entry").count() == 100
        assert page.locator(".count").inner_text() == "10,000 memories"
        page.click(".more")
        expect(page.locator(".entry")).to_have_count(200)
        assert "9899" in focused(page)["text"]  # the first that came
        page.fill("#search", "9876")
        expect(page.locator(".entry")).to_have_count(1)
        page.click(".views >> text=Sessions")
        page.click(".rows summary")
        expect(page.locator(".turns > li")).to_have_count(100)
