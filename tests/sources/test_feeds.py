from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async import InvalidArgument, UnusableFile
from svc_async.ads.products import PRODUCT_CHECKS
from svc_async.errors import Hint
from svc_async.sources.detect import open_feed, open_source
from svc_async.sources.product_attributes import UnparsedRow
from svc_async.sources.xml_feed import XmlFeed
from svc_async.wire.params import first_problem
from tests.support.errors import Check, at, has
from tests.support.files import Write, limit_memory

SHIRT = {
    "id": "shirt-1",
    "title": "Shirt <blue>",
    "description": "A shirt, & more",
    "availability": "in stock",
    "condition": "new",
    "price": "9.90 EUR",
    "link": "https://shop.example.org/shirt",
    "image_link": "https://shop.example.org/shirt.png",
    "brand": "Example",
    "inventory": 3,
    "additional_image_link": "https://shop.example.org/2.png,https://shop.example.org/3%2C4.png",
    "product_type": "Clothes > Shirts",
}
ATTRIBUTES = """<g:id>shirt-1</g:id><g:availability> In_Stock </g:availability><g:condition>NEW</g:condition>
<g:price>9.90 EUR</g:price><g:image_link>https://shop.example.org/shirt.png</g:image_link><g:brand>Example</g:brand>
<g:shipping><g:country>DE</g:country><g:price>4.90 EUR</g:price><g:id>no</g:id></g:shipping>
<g:inventory>3</g:inventory><g:product_type>Clothes &gt; Shirts</g:product_type><g:product_type>New</g:product_type>
<g:additional_image_link>https://shop.example.org/2.png</g:additional_image_link>
<g:additional_image_link>https://shop.example.org/3,4.png</g:additional_image_link><g:unheard_of>x</g:unheard_of>"""
RSS = f"""<?xml version="1.0"?>
<rss version="2.0" xmlns:g="urn:products"><channel><title>Shop</title><link>https://shop.example.org</link>
<description>All</description><item><title>Shirt &lt;blue&gt;</title><link> https://shop.example.org/shirt </link>
<description><![CDATA[A shirt, & more]]></description><guid>no</guid>{ATTRIBUTES}</item>
<item><g:id>2</g:id><title>plain</title><g:title>better</g:title></item></channel></rss>"""
ATOM = f"""<a:feed xmlns:a="urn:atom" xmlns:g="urn:products"><a:id>no</a:id><a:title>Shop</a:title>
<a:entry><a:id>tag:no</a:id><a:title type="html">Shirt &lt;blue></a:title><a:link rel="self" href="https://no"/>
<a:link href="https://shop.example.org/shirt"/><a:summary>A shirt, &amp; more</a:summary>{ATTRIBUTES}</a:entry>
<a:entry><a:id>2</a:id><g:title>better</g:title></a:entry></a:feed>"""


@pytest.mark.parametrize("content", [RSS, ATOM], ids=["rss", "atom"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.rule("PROD-04")
def test_a_feed_in_xml_becomes_products(write: Write, content: str, encoding: str) -> None:
    feed = open_feed(write(content.encode(encoding), "feed"))
    products = list(feed.products())

    assert products == [SHIRT, {"id": "2", "title": "better"}]
    assert first_problem(PRODUCT_CHECKS, products[0]) is None
    assert list(feed.products()) == products
    assert feed.exhausted
    assert feed.bytes_read == feed.size
    begins = [content.splitlines()[(feed.find_line(at) or 0) - 1] for at in (0, 1)]
    assert ["item>" in line or "entry>" in line for line in begins] == [True, True]


@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_a_feed_as_a_table_becomes_products(write: Write, mark: str) -> None:
    values = {**SHIRT, "title": '"Shirt <blue>"', "description": '"A shirt, & more"', "availability": " In_Stock"}
    values["additional_image_link"] = f'"{SHIRT["additional_image_link"]}"'
    names = [*(f"g:{name}" if name == "price" else name.replace("_", " ").title() for name in SHIRT), "shipping(x)"]
    lines = [mark.join(names), mark.join(map(str, [*values.values(), "DE:4.90"])), mark.join(["2", "better"])]
    feed = open_feed(write("\r\n".join(lines)))

    blank = dict.fromkeys(["brand", "inventory", "additional_image_link", "product_type"], "")
    assert list(feed.products()) == [SHIRT, {"id": "2", "title": "better", **blank}]
    assert feed.ignored == ("shipping(x)",)
    assert [feed.find_line(position) for position in range(2)] == [2, 3]


MEDIA = 'xmlns:media="urn:media"'
BOOTS = "<title>Boots</title><g:color>red</g:color>"
FOREIGN = [
    pytest.param(f"<rss {MEDIA}>", f"{BOOTS}<media:title>x</media:title><media:color>x</media:color>", id="declared"),
    pytest.param("<rss>", f"{BOOTS}<media:title>Photo</media:title><dc:color>x</dc:color>", id="not declared"),
    pytest.param("<rss>", f'<title xmlns="urn:media">Photo</title>{BOOTS}', id="default of one element"),
    pytest.param("<rss>", f"<media:title {MEDIA}>Photo</media:title>{BOOTS}", id="declared by the element"),
    pytest.param("<rss>", f'{BOOTS}<g:x xmlns="urn:media"/><title xmlns="urn:media">x</title>', id="ended before"),
    pytest.param('<rss xmlns="urn:own">', f"<media:title>Photo</media:title>{BOOTS}", id="rss with a namespace"),
    pytest.param(
        '<rss xmlns:ns0="http://base.google.com/ns/1.0">',
        "<title>Boots</title><ns0:color>red</ns0:color><ns1:color>x</ns1:color>",
        id="another prefix for the namespace",
    ),
]


@pytest.mark.parametrize(
    "feed",
    [
        '<rss {g}><channel xmlns="http://www.w3.org/2005/Atom"><item>{item}</item></channel></rss>',
        '<rss xmlns="urn:x" {g}><channel xmlns=""><item>{item}</item></channel></rss>',
        '<rss xmlns="urn:x" {g}><channel><item xmlns="">{item}</item></channel></rss>',
        '<a:feed xmlns:a="urn:atom" {g}><a:entry>{item}</a:entry></a:feed>',
    ],
    ids=["channel", "reset by the channel", "reset by the item", "prefixed root"],
)
def test_products_are_found_in_whatever_namespace_a_feed_has(write: Write, feed: str) -> None:
    content = feed.format(g='xmlns:g="http://base.google.com/ns/1.0"', item=f"<g:id>1</g:id>{BOOTS}")
    assert list(open_feed(write(content)).products()) == [{"id": "1", "title": "Boots", "color": "red"}]


@pytest.mark.parametrize(("root", "item"), FOREIGN)
async def test_elements_of_other_namespaces_are_none_of_a_product(write: Write, root: str, item: str) -> None:
    feed = open_feed(write(f"{root}<channel><item><g:id>1</g:id>{item}</item></channel></rss>"))
    assert list(feed.products()) == [{"id": "1", "title": "Boots", "color": "red"}]
    await feed.check()


def test_an_element_of_another_namespace_may_be_mapped_by_its_prefix(write: Write) -> None:
    item = "<g:id>1</g:id><media:title>Photo</media:title><dc:title>x</dc:title>"
    feed = open_feed(write(f"<rss><channel><item>{item}</item></channel></rss>"), mapping={"media:title": "title"})
    assert list(feed.products()) == [{"id": "1", "title": "Photo"}]
    assert feed.ignored == ("dc:title",)


def test_a_blank_element_clears_an_attribute_that_has_no_other_value(write: Write) -> None:
    item = "<g:id>1</g:id><g:title/><title>Boots</title><g:color> </g:color><g:size/><g:size>41</g:size><brand/>"
    (product,) = open_feed(write(f"<rss><channel><item>{item}</item></channel></rss>")).products()
    assert product == {"id": "1", "title": "Boots", "color": "", "size": "41", "brand": ""}


PAGES = [
    "<!DOCTYPE html><html><body>Sign in</body></html>",
    "\ufeff\n<!doctype HTML PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN'>\n<html>",
    '<?xml version="1.0"?><!-- a page --><html xmlns="http://www.w3.org/1999/xhtml">',
    "<html>secret</html>",
    "<HEAD><title>Sign in",
]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
@pytest.mark.parametrize("open_", [open_feed, open_source])
def test_a_web_page_is_not_taken_for_a_feed(write: Write, page: str, encoding: str, open_: Any) -> None:
    with pytest.raises(UnusableFile, match="is a web page"):
        open_(write(page.encode(encoding), "feed"))


def test_a_description_in_html_does_not_make_a_page_of_a_feed(write: Write) -> None:
    item = "<g:id>1</g:id><description><![CDATA[<html>]]></description>"
    (product,) = open_feed(write(f"<!-- <html> --><rss><channel><item>{item}</item></channel></rss>")).products()
    assert product["description"] == "<html>"


def test_columns_and_elements_are_mapped(write: Write) -> None:
    mapping = {"sku": "id", "g:title": "-", "name": "custom_label_0"}
    feed = open_feed(write("SKU,title,name\n1,T,N\n"), mapping=mapping)
    assert list(feed.products()) == [{"id": "1", "custom_label_0": "N"}]
    xml = "<rss><channel><item><g:sku>1</g:sku><title>T</title><g:Name>N</g:Name></item></channel></rss>"
    assert list(open_feed(write(xml), mapping=mapping).products()) == [{"id": "1", "custom_label_0": "N"}]


def test_a_row_with_more_cells_than_the_header_is_empty_with_the_reason(write: Write) -> None:
    products = list(open_feed(write("id,title\n1,T\n2,a,b\n3,T\n")).products())
    assert products == [{"id": "1", "title": "T"}, {}, {"id": "3", "title": "T"}]
    assert isinstance(products[1], UnparsedRow)
    assert products[1].reason == "must not have more cells than the header"


def test_none_of_the_values_of_a_repeated_attribute_is_chosen(write: Write) -> None:
    twice = "<g:price>1 EUR</g:price><g:price>2 EUR</g:price><g:brand>B</g:brand><g:brand>B</g:brand>"
    (product,) = XmlFeed(write(f"<feed><entry>{twice}</entry></feed>")).products()
    assert product == {"price": ["1 EUR", "2 EUR"], "brand": "B"}
    problem = first_problem(PRODUCT_CHECKS, {**SHIRT, **product})
    assert problem is not None
    assert problem.parameter == "price"


@pytest.mark.parametrize("stock", ["-1", "1.5", "many", "9" * 5_000, "²"])
@pytest.mark.rule("PROD-05")
def test_a_stock_that_is_not_a_number_is_left_for_the_checks(write: Write, stock: str) -> None:
    (product,) = open_feed(write(f"id,inventory\n1,{stock}\n")).products()
    problem = first_problem(PRODUCT_CHECKS, {**SHIRT, **product})

    assert problem is not None
    assert problem.parameter == "inventory"


LAUGHS = '<!ENTITY l0 "secret">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
REFUSED = [
    pytest.param(f"<!DOCTYPE r [{LAUGHS}]>\n<rss>&l9;</rss>", at(line=1), id="billion laughs"),
    pytest.param('\n<!DOCTYPE rss SYSTEM "file:///etc/passwd">\n<rss/>', at(line=2), id="external"),
    pytest.param('<!DOCTYPE r [<!ENTITY x SYSTEM "/etc/hosts">]><rss>&x;</rss>', at(line=1), id="file"),
    pytest.param("<rss><channel>\n<item><title>secret", at(line=2), id="cut short"),
    pytest.param("<rss>\n\n<item></rss>", at(line=3), id="mismatched"),
    pytest.param("<rss>&secret;</rss>", at(line=1), id="entity"),
    pytest.param("<rss>\0</rss>", at(line=1), id="nul"),
    pytest.param("<catalog>secret</catalog>", at(line=1), id="root"),
    pytest.param('<rss xmlns:m="urn:m"><m:channel/></m:rss>', at(line=1), id="prefixes"),
    pytest.param('<?xml version="1.0" encoding="secret"?><rss/>', at(line=None), id="encoding"),
    pytest.param("<rss>" + "<a>" * 100, at(line=1), id="deep"),
    pytest.param("<rss><!--" + "x" * 5_000_000 + "--></rss>", at(line=1), id="comment"),
    pytest.param(
        "<feed><entry><g:title>" + "secret " * 700_000 + "</g:title></entry></feed>", at(line=1), id="long"
    ),
    pytest.param('id,title\n1,"secret\n', at(line=2), id="quote"),
    pytest.param("id,title,ID\n", has(hint=Hint.NAME_EACH_COLUMN), id="two of one kind"),
    pytest.param("id,titel\n", has(hint=Hint.MAP_OR_IGNORE), id="misspelt"),
    pytest.param("what,ever\nsecret,1\n", has(hint=Hint.MAP_A_COLUMN), id="none known"),
    pytest.param('{"what": "secret"}', has(hint=Hint.MAP_A_COLUMN), id="none known in JSON"),
    pytest.param("", at(line=None), id="empty"),
]  # fmt: skip  # one row a line


@pytest.mark.parametrize(("content", "check"), REFUSED)
async def test_an_error_names_its_line_and_no_value(write: Write, content: str, check: Check) -> None:
    path = write(content, "feed")
    with pytest.raises(UnusableFile, check=check) as caught:
        await open_feed(path).check()

    assert "secret " not in str(caught.value)


@pytest.mark.parametrize("mapping", [{"titel": "-"}, {"titel": "title"}])
async def test_a_column_that_is_named_in_the_mapping_is_not_taken_for_a_mistake(
    write: Write, mapping: dict[str, str]
) -> None:
    await open_feed(write("id,titel,colour\n", "feed"), mapping=mapping).check()


def test_a_declaration_is_refused_before_any_product_is_read(write: Write) -> None:
    assert next(iter(XmlFeed(write(RSS)).products()))
    with pytest.raises(UnusableFile, check=at(line=1)):
        XmlFeed(write('<!DOCTYPE rss [<!ENTITY a "b">]>' + RSS.split("\n", 1)[1]))


@pytest.mark.parametrize("mapping", [{"sku": "nonsense"}, {"sku": "product_key"}])
@pytest.mark.parametrize("content", ["sku\n", "<rss/>"])
@pytest.mark.rule("PROD-09")
def test_a_mapping_must_be_to_an_attribute_that_a_merchant_sets(
    write: Write, content: str, mapping: Mapping[str, str]
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="map")):
        open_feed(write(content), mapping=mapping)


def test_xml_declares_its_encoding(write: Write) -> None:
    xml = '<?xml version="1.0" encoding="windows-1252"?><feed><entry><title>Zoë</title></entry></feed>'
    assert list(open_feed(write(xml.encode("cp1252"))).products()) == [{"title": "Zoë"}]


async def test_a_fingerprint_is_of_the_content_and_its_meaning(write: Write) -> None:
    path = write(RSS)
    assert await XmlFeed(path).fingerprint() == await XmlFeed(path).fingerprint()
    assert await XmlFeed(path).fingerprint() != await XmlFeed(path, mapping={"guid": "id"}).fingerprint()


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8).map(str.strip)


@pytest.mark.usefixtures("examples")
@given(titles=st.lists(TEXT.filter(bool), max_size=6), size=st.integers(1, 50))
def test_a_block_may_end_anywhere(write: Write, titles: list[str], size: int) -> None:
    items = "".join(f"<item><title>{escape(title)}</title></item>" for title in titles)
    feed = XmlFeed(write(f"<rss><channel>{items}</channel></rss>"), block_size=size)

    assert [product["title"] for product in feed.products()] == titles


@pytest.mark.usefixtures("examples")
@given(content=st.binary(max_size=80), start=st.sampled_from([b"", b"<", b"<rss><channel><item>", b"id,title\n"]))
def test_any_bytes_are_read_or_refused_as_an_unusable_feed(write: Write, content: bytes, start: bytes) -> None:
    try:
        products: list[Any] = list(open_feed(write(start + content)).products())
    except UnusableFile:
        return
    assert all(isinstance(product, dict) for product in products)


@pytest.mark.long("a file that is large beside the memory")
def test_memory_use_is_constant(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    item = ATTRIBUTES.replace("shirt-1", "%d")

    with path.open("w") as file:
        file.write("<rss><channel>")
        for number in range(5_000):
            file.write(f"<item>{item % number}</item>")
        file.write("</channel></rss>")

    assert path.stat().st_size > 3_000_000
    feed = open_feed(path)

    with limit_memory(1):
        assert sum(1 for _ in feed.products()) == 5_000


@pytest.mark.long("a file that is large beside the memory")
def test_blank_elements_take_no_memory(write: Write) -> None:
    feed = open_feed(write(f"<rss><channel><item><g:id>1</g:id>{'<g:color/>' * 200_000}</item></channel></rss>"))
    with limit_memory(1):
        assert list(feed.products()) == [{"id": "1", "color": ""}]
