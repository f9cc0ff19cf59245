# build-aux - tools of the build and checks of the house
EXTRA_DIST += %D%/bundle-families
