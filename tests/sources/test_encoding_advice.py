# ruff: noqa: RUF001 - letters of other scripts are what is tested
"""Which encoding is proposed for a file that is not UTF-8."""

import codecs
import sys
from pathlib import Path

import pytest

from svc_async import UnusableFile
from svc_async.errors import Hint
from svc_async.sources.detect import open_source
from tests.support.files import Write, read_rows

NAMES = {
    "cp1251": "Иван Петров,Москва\nМария Щербакова,Казань",
    "koi8-r": "Иван Петров,Москва\nМария Щербакова,Казань",
    "cp1253": "Γιώργος Παπαδόπουλος,Αθήνα\nΜαρία Οικονόμου,Θεσσαλονίκη",
    "cp932": "山田太郎,東京都\n佐藤花子,大阪市\nたかはしゆき,札幌市",
    "gb18030": "王伟,北京市\n李娜,上海市\n刘洋,深圳市",
    "big5": "王偉,臺北市\n李娜,高雄市\n張敏,臺中市",
    "cp949": "김철수,서울\n이영희,부산\n박지훈,대구",
    "cp874": "สมชาย ใจดี,กรุงเทพ\nสมหญิง รักไทย,เชียงใหม่",
}
LATIN_NAMES = {
    "French": "Élodie Lefèvre,Besançon\nJérôme Noël,Évry",
    "Spanish": "José Muñoz,Córdoba\nBegoña Gómez,León",
    "Portuguese": "João Conceição,São Paulo\nInês Araújo,Évora",
    "Swedish": "Åke Öberg,Malmö\nMärta Sjöström,Göteborg",
    "German": "Jürgen Müller,Köln\nKäthe Größ,Düsseldorf",
}


def find_proposal(path: Path) -> str:
    with pytest.raises(UnusableFile) as caught:
        open_source(path, mapping={"*": "-"})
    assert caught.value.hint is Hint.NAME_THE_ENCODING
    return caught.value.problem.partition(", probably ")[2]


@pytest.mark.parametrize("encoding", NAMES)
def test_the_encoding_of_another_script_is_proposed(write: Write, encoding: str) -> None:
    rows = NAMES[encoding].replace("\n", "\na@b.de,John Smith,London\nb@b.de,")
    path = write(f"email,name,city\na@b.de,{rows}\n".encode(encoding))
    assert find_proposal(path) == encoding
    assert (
        len(read_rows(open_source(path, mapping={"*": "-"}, encoding=encoding))) == 2 * NAMES[encoding].count("\n") + 1
    )


@pytest.mark.parametrize("language", LATIN_NAMES)
def test_for_latin_letters_the_encoding_of_windows_is_proposed(write: Write, language: str) -> None:
    rows = LATIN_NAMES[language].replace("\n", "\nb@b.de,")
    path = write(f"email,name,city\na@b.de,{rows}\n".encode("cp1252"))
    assert find_proposal(path) == "cp1252"


def test_without_the_library_letters_of_windows_decide(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    path = write(f"email,name,city\na@b.de,{NAMES['cp1251']}\n".encode("cp1251"))
    assert find_proposal(path) == "cp1252"


def test_nothing_is_proposed_for_damaged_unicode(write: Write) -> None:
    assert find_proposal(write(codecs.BOM_UTF16_LE + b"\xfd")) == ""
