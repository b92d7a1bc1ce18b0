# ruff: noqa: RUF001 - letters of other scripts are what is tested
"""Which encodings are proposed for a file that is not UTF-8: all in which its bytes are words, never one of several."""

import codecs
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from svc_async import UnusableFile
from svc_async.errors import Hint
from svc_async.sources.detect import open_source
from tests.support.files import Write, read_rows

NAMES = {
    "cp1254": "Şükrü Çağlı,Iğdır\nİbrahim Yılmaz,Kırşehir\nGüneş Öztürk,Muğla",
    "cp1252": "Élodie Lefèvre,Besançon\nJérôme Noël,Évry\nJürgen Müller,Köln\nÅke Öberg,Malmö",
    "cp1250": "Łukasz Świątek,Kraków\nZdeněk Dvořák,Plzeň\nŽofie Šťastná,Bőnyi",
    "iso8859-2": "Łukasz Świątek,Kraków\nZdeněk Dvořák,Plzeň\nŽofie Šťastná,Bőnyi",
    "cp852": "Łukasz Świątek,Kraków\nZdeněk Dvořák,Plzeň",
    "cp1257": "Jānis Bērziņš,Rīga\nŽivilė Šimkutė,Šiauliai",
    "cp850": "Jürgen Müller,Köln\nKäthe Größ,Düsseldorf",
    "mac-roman": "Jürgen Müller,Köln\nKäthe Größ,Düsseldorf",
    "cp1251": "Иван Петров,Москва\nМария Щербакова,Казань",
    "koi8-r": "Иван Петров,Москва\nМария Щербакова,Казань",
    "koi8-u": "Ірина Шевченко,Київ\nЮрій Їжакевич,Львів",
    "cp866": "Иван Петров,Москва\nМария Щербакова,Казань",
    "iso8859-5": "Иван Петров,Москва\nМария Щербакова,Казань",
    "mac-cyrillic": "Иван Петров,Москва\nМария Щербакова,Казань",
    "cp1253": "Γιώργος Παπαδόπουλος,Αθήνα\nΆννα Οικονόμου,Θεσσαλονίκη",
    "iso8859-7": "Γιώργος Παπαδόπουλος,Αθήνα\nΆννα Οικονόμου,Θεσσαλονίκη",
    "cp1255": "דוד כהן,תל אביב\nשרה לוי,חיפה",
    "cp1256": "محمد علي,القاهرة\nفاطمة حسن,دمشق",
    "cp874": "สมชาย ใจดี,กรุงเทพ\nสมหญิง รักไทย,เชียงใหม่",
    "cp932": "山田太郎,東京都\n佐藤花子,大阪市\nたかはしゆき,札幌市",
    "euc_jp": "山田太郎,東京都\n佐藤花子,大阪市\nたかはしゆき,札幌市",
    "gb18030": "王伟,北京市\n李娜,上海市\n刘洋,深圳市",
    "big5": "王偉,臺北市\n李娜,高雄市\n張敏,臺中市",
    "cp949": "김철수,서울\n이영희,부산\n박지훈,대구",
}
LATIN = {"cp1250", "cp1252", "cp1254", "cp1257", "iso8859-2"}


def find_proposals(path: Path) -> Collection[str]:
    with pytest.raises(UnusableFile) as caught:
        read_rows(open_source(path, mapping={"*": "-"}))
    assert caught.value.hint is Hint.NAME_THE_ENCODING
    return set(re.findall(r"(\w[\w-]*) \(", caught.value.problem))


@pytest.mark.parametrize("encoding", NAMES)
def test_the_encoding_of_a_file_is_proposed(write: Write, encoding: str) -> None:
    rows = NAMES[encoding].replace("\n", "\na@b.de,John Smith,London\nb@b.de,")
    path = write(f"email,name,city\na@b.de,{rows}\n".encode(encoding))
    assert encoding in find_proposals(path)
    lines = 2 * NAMES[encoding].count("\n") + 1
    assert len(read_rows(open_source(path, mapping={"*": "-"}, encoding=encoding))) == lines


@pytest.mark.parametrize("encoding", NAMES)
def test_the_encoding_of_a_single_name_is_proposed(write: Write, encoding: str) -> None:
    name = NAMES[encoding].partition(",")[0]
    assert encoding in find_proposals(write(f"email,name\na@b.de,{name}\n".encode(encoding)))


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        pytest.param("Şükrü Işık".encode("cp1254"), LATIN, id="Turkish"),
        pytest.param("Jānis Bērziņš".encode("cp1257"), LATIN, id="Baltic"),
        pytest.param("Jürgen Müller".encode("cp1252"), LATIN, id="German"),
        pytest.param("Dvořák".encode("iso8859-2"), LATIN, id="Czech"),
        pytest.param("Иван".encode("cp1251"), {"cp1251", "iso8859-5"}, id="Russian"),
        pytest.param("Αθήνα".encode("iso8859-7"), {"cp1253", "iso8859-7"}, id="Greek"),
    ],
)
def test_no_encoding_is_the_only_one_where_others_have_letters_too(
    write: Write, text: bytes, fitting: Collection[str]
) -> None:
    found = find_proposals(write(b"email,name\na@b.de," + text + b"\n"))
    assert set(fitting) <= set(found)


@pytest.mark.parametrize(
    ("text", "encoding", "other"),
    [
        pytest.param("Иван Петров", "koi8-r", "cp1251", id="capitals within words"),
        pytest.param("Élodie Lefèvre", "cp1252", "cp1251", id="two scripts in a word"),
        pytest.param("Иван Петров", "cp1251", "cp1252", id="words of accents"),
        pytest.param("Łódź", "cp1250", "cp1252", id="no letters"),
    ],
)
def test_an_encoding_in_which_the_bytes_are_not_words_is_not_proposed(
    write: Write, text: str, encoding: str, other: str
) -> None:
    found = find_proposals(write(f"email,name\na@b.de,{text}\n".encode(encoding)))
    assert encoding in found
    assert other not in found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(codecs.BOM_UTF16_LE + b"\xfd", id="of another Unicode encoding"),
        pytest.param(
            "email,name\na,Müller\nb,Köln\nc,Größ\n".encode() + b"d,M\xfcller\n", id="in UTF-8 but for a line"
        ),
    ],
)
def test_nothing_is_proposed_for_what_is_damaged(write: Write, content: bytes) -> None:
    assert not find_proposals(write(content))
