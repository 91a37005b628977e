from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("MXFP4", raw("MXFP4", {0: "80", 1: "f7 91"}), {0: 12.0, 1: 1.0, 16: -12.0, 17: -1.0}, rest=0.0)


def test_equals_the_gguf_package() -> None:
    agrees("MXFP4")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("MXFP4")
