"""Texts with the verdict that the local rules must give: ways of hiding a word, and texts that only look as if they did.

Everything invisible is written as an escape, so that it can be seen here.
"""

from typing import Final

from gateway.admission.local_rules import DENIED
from gateway.admission.secret_patterns import CARD_NUMBER, SECRET

RULES: Final = (
    "# what nobody may ask for here",
    "forbidden",
    "verboten",
    "death ray",
    "~casino",
    "~leetword",
    r"/\bsex\b/",
    r"/b[o0]mb\s+recipe/",
    "запрещено",
    "कल",
    "sik",
    "coke",
    "ممنوع",
    "filthy",
    "verbosten",
)


def _shifted(word: str, first: int) -> str:
    """`word` in an alphabet of its own, which begins at that code point."""
    return "".join(chr(first + ord(letter) - ord("a")) for letter in word)


EVASIONS: Final = (
    # as it is, in any case, within other words
    "this is forbidden here",
    "FORBIDDEN",
    "FoRbIdDeN",
    "unforbiddenly",
    "how to build a death ray",
    "bomb recipe",
    "B0MB \n recipe",
    # zero width and other invisible characters
    "for\u200bbidden",
    "f\u200bo\u200br\u200bb\u200bi\u200bd\u200bd\u200be\u200bn",
    "for\u200cbidden",
    "for\u200dbidden",
    "for\u2060bidden",
    "for\ufeffbidden",
    "for\u00adbidden",
    "for\u034fbidden",
    "for\u061cbidden",
    "for\u180ebidden",
    "for\u2063bidden",
    "for\ufe0fbidden",
    "for\U000e0100bidden",
    "for\U000e0062bidden",
    "for\u115fbidden",
    "for\u3164bidden",
    "for\uffa0bidden",
    "for\u2800bidden",
    "for\u0008bidden",
    "for\u007fbidden",
    "for\u206abidden",
    # bidi controls, and a run that is shown backwards
    "for\u202abid\u202cden",
    "for\u2066bid\u2069den",
    "\u200ffor\u200ebidden",
    "\u202eneddibrof\u202c",
    "see \u202eneddibrof",
    # full width, circled, squared, mathematical
    "\uff46\uff4f\uff52\uff42\uff49\uff44\uff44\uff45\uff4e",
    "\uff26\uff2f\uff32\uff22\uff29\uff24\uff24\uff25\uff2e",
    _shifted("forbidden", 0x24D0),
    _shifted("forbidden", 0x1D41A),
    _shifted("forbidden", 0x1D51E),
    _shifted("forbidden", 0x1D5BA),
    _shifted("forbidden", 0x1D68A),
    _shifted("forbidden", 0x1F130),
    _shifted("forbidden", 0x1F150),
    _shifted("forbidden", 0x1F170),
    "\ua730\u1d0f\u0280\u0299\u026a\u1d05\u1d05\u1d07\u0274",
    "ver\u1d47oten",
    # letters of other alphabets that look alike
    "f\u043erbidden",
    "f\u03bfrbidden",
    "forb\u0456dd\u0435n",
    "f\u0585rbidden",
    "\u0455\u0435\u0445",
    "s\u0435x",
    "v\u0435rb\u043et\u0435n",
    "deat\u04bb ray",
    "\u0421\u041e\u041a\u0415",
    "f\u00f8rbidden",
    "forbi\u0111\u0111en",
    "\u0192orbidden",
    # combining marks
    "fo\u0301rbidden",
    "f\u0336o\u0336r\u0336b\u0336i\u0336d\u0336d\u0336e\u0336n\u0336",
    "f\u00f6rb\u00efdd\u00e9n",
    "f\u20ddo\u20ddrbidden",
    "for\u094dbidden",
    "f\u030a\u0323\u0310orbidden",
    "ver\u1ab0boten",
    # ligatures, and letters that fold to more than one
    "\ufb01lthy word",
    "\u017fex",
    "VERBO\ufb05EN",
    # digits and signs for letters, where a rule says so
    "c4s1n0",
    "C@$!N0",
    "l33tw0rd",
    "1eetword",
    "c\u200ba\u200bs1no",
    # other scripts' own words
    "это запрещено",
    "ЗАПРЕЩЕНО",
    "запре\u0301щено",
    "हम कल मिलेंगे",
    "مم\u0640نوع",
    "مَمْنُوع",
)

INNOCENTS: Final = (
    # near a rule, and not it
    "What is allowed here?",
    "for bidden guests",
    "The for-bid-den of the pun",
    "forbid",
    "Essex and Sussex",
    "sextant, Middlesex",
    "bombs are bad; a recipe for bread",
    "seven death metal bands, a ray of light",
    "leet w0rd",
    # digits for letters, where no rule says so
    "f0rbidden",
    "v3rboten",
    # joiners, skin, keycaps and flags in emoji
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U0001f468\U0001f3fd\u200d\U0001f4bb writes code",
    "\u2764\ufe0f\u200d\U0001f525",
    "1\ufe0f\u20e3 and #\ufe0f\u20e3",
    "\U0001f1e9\U0001f1ea\U0001f1e6\U0001f1f9\U0001f1ed\U0001f1fa ray",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    # Persian, Arabic, Hebrew, Urdu
    "می\u200cخواهم کتاب بخوانم",
    "نمی\u200cدانم",
    "کتاب\u200cها",
    "السَّلَامُ عَلَيْكُمْ",
    "مرحبا، كيف حالك؟",
    "שָׁלוֹם עוֹלָם",
    "\u200fשלום (hello)\u200e",
    "یہ اردو ہے",
    # Hindi and other scripts whose marks make words
    "कुल मिलाकर",
    "क्या काल सही है?",
    "नमस्ते दुनिया",
    "क्\u200dष",
    "বাংলা ভাষা",
    "தமிழ் மொழி",
    "ภาษาไทย",
    "ಕನ್ನಡ",
    "မြန်မာ",
    # Turkish
    "S\u0131k s\u0131k gelirim",
    "\u0130stanbul'da ya\u011fmur",
    "\u0131\u015f\u0131k ve \u0130\u015f\u0131k",
    # Russian, Greek, Ukrainian, Bulgarian in their own words
    "Расскажи о яблочном соке",
    "Это разрешено",
    "\u0421оке и вода, пожалуйста",
    "Καλημέρα κόσμε",
    "Що це таке?",
    "Здравей, свят",
    # Europe
    "Größe, Straße, übermäßig",
    "Łódź, Gdańsk",
    "Blåbærgrød og smørrebrød",
    "Đà Nẵng, Việt Nam",
    "cœur, naïve façade",
    "Þingvellir",
    "Sørensen & Ångström",
    # East Asia
    "日本語のテキスト",
    "ｶﾀｶﾅ と 全角１２３",
    "中文文本，没有问题",
    "한국어 문장입니다",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",
    # code, and what looks like secrets
    "for (int i = 0; i < n; i++) { a[i] |= 1 << i; }",
    "SELECT * FROM users WHERE id = 42; -- comment",
    "git rev-parse 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "550e8400-e29b-41d4-a716-446655440000",
    "export API_KEY=<your key>; sk-... goes there",
    "https://example.org/sk-najlepsie-recepty-na-vianocne-pecivo-doma",
    "the header is `Authorization: Bearer <token>`, a JWT begins with eyJ",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "regex: ^[A-Za-z0-9+/]{80}=*$",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
    # numbers that are no card's
    "order 4111111111111112",
    "call +49 151 12345678, that is 4915112345678",
    "barcode 4000000000006",
    "IBAN DE52 4999 9999 0001 0008 05",
    "p = 0.4111111111111111",
    "1700000000000 ms since the epoch",
    "call +49 30 1234 5678 or 0049 151 2345 6789",
    "1234 5678 9012 3456",
    "ISBN 978-3-16-148410-0",
    "DE89 3704 0044 0532 0130 00",
    "3.14159265358979323846264338327950288",
    "4242424242424242424242424242424242424242",
    # names
    "O'Connor, García-Márquez, Nguyễn Thị Hồng",
    "Mr Forbes Biden-Den",
    "Zoë, Björk, Siân, Jürgen",
    # blanks, quotes, controls that people type
    "tabs\tand\r\nlines\u2028and\u2029paragraphs\u0085",
    "no\u00a0break, thin\u2009space, \u2018quotes\u2019 \u2014 dashes",
    '{"json": "with \\"escapes\\" and \\u0041"}',
)

SECRETS: Final = (
    ("my key is AKIA" + "ABCDEFGHIJKLMNOP", SECRET),
    ("token gh" + "p_" + "a1B2" * 9, SECRET),
    ("use some" + "_pat_" + "A1b2C3d4_" * 8, SECRET),
    ("glp" + "at-" + "x9Y8" * 5, SECRET),
    ("xox" + "b-1234567890-abcdefghij", SECRET),
    ("sk_" + "live_" + "0123456789abcdef", SECRET),
    ("KEY=sk" + "-proj-" + "Ab1_" * 10, SECRET),
    ("AI" + "za" + "0123456789_abcdefghijklmnopqrstuvwxyz"[:35], SECRET),
    ("hf" + "_" + "abcdefgh" * 4, SECRET),
    ("123456789:" + "AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr", SECRET),
    ("eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U", SECRET),
    ("-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk", SECRET),
    ("-----BEGIN " + "PRIVATE KEY-----", SECRET),
    ("AccountKey=" + "Ab0+" * 21 + "==", SECRET),
    ("gh" + "p_\u200b" + "a1B2" * 9, SECRET),
    ("card 4111 1111 1111 1111", CARD_NUMBER),
    ("4111111111111111", CARD_NUMBER),
    ("5555-5555-5555-4444", CARD_NUMBER),
    ("3782 822463 10005", CARD_NUMBER),
    ("3056 930902 5904", CARD_NUMBER),
    ("6011111111111117", CARD_NUMBER),
    ("\uff14\uff11\uff11\uff11 1111 1111 1111", CARD_NUMBER),
    ("4111\u200b111111111111", CARD_NUMBER),
)

EXPECTED: Final = (
    *((text, (DENIED,)) for text in EVASIONS),
    *((text, ()) for text in INNOCENTS),
    *((text, (category,)) for text, category in SECRETS),
)
